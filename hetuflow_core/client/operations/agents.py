"""The REST calls about agents and what they are told."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from hetuflow_core.agent.commands import LIVE_STATES, AgentConfiguration, Shutdown
from hetuflow_core.client.calls import get, pages, post, segment
from hetuflow_core.client.exchange import Now, Pause, Plan, Request, Stream
from hetuflow_core.client.retry import answered
from hetuflow_core.errors import NotFound
from hetuflow_core.resources.agents import Agent, AgentCommand, AgentDetail, HostSample, KickRequest
from hetuflow_core.resources.pages import Page

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5


def agents(
    *,
    status: str | None = None,
    labels: Mapping[str, str] | None = None,
    page_size: int | None = None,
) -> Stream[Agent]:
    """Agents by name; fetched page by page as they are iterated over."""
    wanted = [f"{key}={value}" for key, value in (labels or {}).items()]
    query = {"status": status, "label": wanted, "limit": page_size}
    return (yield from pages("/agents", query, Page[Agent]))


def agent(name: str) -> Plan[AgentDetail]:
    """The agent of this name and what it holds now; `NotFound` if there is none."""
    page = yield from get("/agents", Page[Agent], query={"name": name})
    for found in page.items:
        return (yield from agent_by_id(found.id))
    raise NotFound(f"There is no agent {name!r}: `hetuflow agent list` shows those there are.")


def agent_by_id(agent_id: UUID | str) -> Plan[AgentDetail]:
    return (yield from get(f"/agents/{segment(agent_id)}", AgentDetail))


def agent_usage(
    agent_id: UUID | str,
    *,
    since: datetime | None = None,
    minutes: int | None = None,
    page_size: int | None = None,
) -> Stream[HostSample]:
    """How busy the agent's host was, newest first; `minutes`: how many each sample sums up."""
    query = {"since": since, "minutes": minutes, "limit": page_size}
    return (yield from pages(f"/agents/{segment(agent_id)}/usage", query, Page[HostSample]))


def approve_agent(agent_id: UUID | str) -> Plan[AgentDetail]:
    """Let an agent that waits for approval take work."""
    return (yield from post(f"/agents/{segment(agent_id)}/approve", None, AgentDetail, repeatable=True))


def drain_agent(agent_id: UUID | str) -> Plan[AgentDetail]:
    """Give the agent no more work; what it has it finishes."""
    return (yield from post(f"/agents/{segment(agent_id)}/drain", None, AgentDetail, repeatable=True))


def resume_agent(agent_id: UUID | str) -> Plan[AgentDetail]:
    """Give a drained agent work again."""
    return (yield from post(f"/agents/{segment(agent_id)}/resume", None, AgentDetail, repeatable=True))


def kick_agent(agent_id: UUID | str, *, lose_running: bool = False) -> Plan[AgentDetail]:
    """End the agent's session; its process exits. What it runs keeps its lease, unless `lose_running`."""
    return (yield from post(f"/agents/{segment(agent_id)}/kick", KickRequest(lose_running), AgentDetail))


def delete_agent(agent_id: UUID | str) -> Plan[None]:
    """Forget the agent; refused while it holds work, unless it was kicked."""
    yield from answered(Request("DELETE", f"/agents/{segment(agent_id)}", ()))


def shutdown_agent(agent_id: UUID | str, *, now: bool = False) -> Plan[AgentCommand]:
    """Stop the agent's process once what runs has ended, or `now`."""
    return (yield from post(f"/agents/{segment(agent_id)}/shutdown", Shutdown(now), AgentCommand))


def configure_agent(agent_id: UUID | str, configuration: AgentConfiguration) -> Plan[AgentCommand]:
    """Change settings of the agent while it runs; `wait_for_command` tells whether it has accepted them."""
    return (yield from post(f"/agents/{segment(agent_id)}/configure", configuration, AgentCommand))


def agent_metrics(agent_id: UUID | str) -> Plan[AgentCommand]:
    """Ask the agent for facts about its host; they are the command's result."""
    return (yield from post(f"/agents/{segment(agent_id)}/metrics", None, AgentCommand))


def agent_commands(
    *, agent_id: UUID | str | None = None, state: str | None = None, page_size: int | None = None
) -> Stream[AgentCommand]:
    """What one agent or all were told, newest first; `state="dead"` is what nobody answered."""
    path = "/agent-commands" if agent_id is None else f"/agents/{segment(agent_id)}/commands"
    return (yield from pages(path, {"state": state, "limit": page_size}, Page[AgentCommand]))


def agent_command(command_id: UUID | str) -> Plan[AgentCommand]:
    return (yield from get(f"/agent-commands/{segment(command_id)}", AgentCommand))


def resend_agent_command(command_id: UUID | str) -> Plan[AgentCommand]:
    """Send a dead command again; the answer is the new one."""
    return (yield from post(f"/agent-commands/{segment(command_id)}/resend", None, AgentCommand))


def wait_for_command(command_id: UUID | str, timeout: float) -> Plan[AgentCommand]:
    """The command once it was answered or given up; as it stands when `timeout` seconds are over."""
    started_at: float = yield Now()
    pause = _FIRST_PAUSE
    while True:
        found = yield from agent_command(command_id)
        if found.state not in LIVE_STATES or (yield Now()) + pause > started_at + timeout:
            return found
        yield Pause(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
