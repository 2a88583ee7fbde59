"""`/agents` and `/agent-commands`."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from litestar import Router, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.agent.commands import AgentConfiguration, CommandState, Shutdown
from hetuflow_core.errors import Invalid
from hetuflow_core.resources.agents import Agent, AgentCommand, AgentDetail, HostSample, KickRequest
from hetuflow_core.resources.pages import Page
from hetuflow_core.states import AgentStatus
from hetuflow_server.agents.actions import AgentActions
from hetuflow_server.agents.commands_store import CommandFilter
from hetuflow_server.agents.listing_store import AgentFilter
from hetuflow_server.agents.usage_store import SampleFilter
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.filters import Labels, labels_of
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext

_FOUND = problems(HTTPStatus.NOT_FOUND)
_DECIDED = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@get("/agents", operation_id="list_agents", opt=needs(Permission.AGENTS_READ), responses=problems())
async def list_agents(
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
    name: Annotated[str | None, QueryParameter()] = None,
    status: Annotated[str | None, QueryParameter()] = None,
    label: Labels = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Agent]:
    """List agents by name."""
    if status is not None and status not in list(AgentStatus):
        raise Invalid(f"There is no agent status {status}: use one of {', '.join(AgentStatus)}.")
    wanted = AgentFilter(name, status, labels_of(label), decode_cursor(cursor, str))
    agents, total = await agent_actions.list_agents(context, wanted, limit=limit, cap=TOTAL_CAP)
    more = encode_cursor(agents[limit - 1].name) if len(agents) > limit else None
    return Page(agents[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@get("/agents/{agent_id:uuid}", operation_id="get_agent", opt=needs(Permission.AGENTS_READ), responses=_FOUND)
async def get_agent(
    agent_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
) -> AgentDetail:
    """An agent and what it holds now."""
    return await agent_actions.agent(context, agent_id)


@get(
    "/agents/{agent_id:uuid}/usage",
    operation_id="list_usage_of_agent",
    opt=needs(Permission.AGENTS_READ),
    responses=_FOUND,
)
async def list_usage_of_agent(
    agent_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
    since: Annotated[datetime | None, QueryParameter()] = None,
    minutes: Annotated[int, QueryParameter(ge=1, le=1440, description="How many one item sums up.")] = 1,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[HostSample]:
    """List how busy an agent's host was, minute by minute, newest first."""
    before = decode_cursor(cursor, datetime)
    wanted = SampleFilter(agent_id, minutes, since, before)
    found, more = await agent_actions.host_samples(context, wanted, limit=limit)
    return Page(found, encode_cursor(found[-1].at) if more else None, len(found), more or before is not None)


@post(
    "/agents/{agent_id:uuid}/approve",
    status_code=200,
    operation_id="approve_agent",
    opt=needs(Permission.AGENTS_MANAGE),
    responses=_DECIDED,
)
async def approve_agent(
    agent_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
) -> AgentDetail:
    """Let an agent that waits for approval take work."""
    return await agent_actions.approve(context, agent_id)


@post(
    "/agents/{agent_id:uuid}/drain",
    status_code=200,
    operation_id="drain_agent",
    opt=needs(Permission.AGENTS_MANAGE),
    responses=_DECIDED,
)
async def drain_agent(
    agent_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
) -> AgentDetail:
    """Give an agent no more work, also after it was restarted; what it has it finishes."""
    return await agent_actions.drain(context, agent_id)


@post(
    "/agents/{agent_id:uuid}/resume",
    status_code=200,
    operation_id="resume_agent",
    opt=needs(Permission.AGENTS_MANAGE),
    responses=_DECIDED,
)
async def resume_agent(
    agent_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
) -> AgentDetail:
    """Give a drained agent work again."""
    return await agent_actions.resume(context, agent_id)


@post(
    "/agents/{agent_id:uuid}/kick",
    status_code=200,
    operation_id="kick_agent",
    opt=needs(Permission.AGENTS_MANAGE),
    responses=_DECIDED,
)
async def kick_agent(
    agent_id: FromPath[UUID],
    data: JSONBody[KickRequest],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
) -> AgentDetail:
    """End an agent's session; its process exits. What it runs keeps its lease, unless `lose_running`."""
    return await agent_actions.kick(context, agent_id, lose_running=data.lose_running)


@delete(
    "/agents/{agent_id:uuid}",
    operation_id="delete_agent",
    opt=needs(Permission.AGENTS_MANAGE),
    responses=_DECIDED,
)
async def delete_agent(
    agent_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
) -> None:
    """Forget an agent; refused while it holds work, unless it was kicked."""
    await agent_actions.delete(context, agent_id)


@post(
    "/agents/{agent_id:uuid}/shutdown",
    status_code=202,
    operation_id="shutdown_agent",
    opt=needs(Permission.AGENTS_MANAGE),
    responses=_DECIDED,
)
async def shutdown_agent(
    agent_id: FromPath[UUID],
    data: JSONBody[Shutdown],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
) -> AgentCommand:
    """Stop an agent's process, once what runs has ended or `now`."""
    return await agent_actions.shutdown(context, agent_id, data)


@post(
    "/agents/{agent_id:uuid}/configure",
    status_code=202,
    operation_id="configure_agent",
    opt=needs(Permission.AGENTS_MANAGE),
    responses=_DECIDED,
)
async def configure_agent(
    agent_id: FromPath[UUID],
    data: JSONBody[AgentConfiguration],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
) -> AgentCommand:
    """Change slots, labels, taints or the log level of an agent; it keeps them on its disk."""
    return await agent_actions.configure(context, agent_id, data)


@post(
    "/agents/{agent_id:uuid}/metrics",
    status_code=202,
    operation_id="agent_metrics",
    opt=needs(Permission.AGENTS_MANAGE),
    responses=_DECIDED,
)
async def agent_metrics(
    agent_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
) -> AgentCommand:
    """Ask an agent for facts about its host; they come as the result of the command."""
    return await agent_actions.metrics(context, agent_id)


@get(
    "/agents/{agent_id:uuid}/commands",
    operation_id="list_commands_of_agent",
    opt=needs(Permission.AGENTS_READ),
    responses=_FOUND,
)
async def list_commands_of_agent(
    agent_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
    command_state: Annotated[str | None, QueryParameter(name="state")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[AgentCommand]:
    """List what an agent was told, newest first."""
    wanted = CommandFilter(agent_id, _state(command_state), decode_cursor(cursor, UUID))
    return await _page(agent_actions, context, wanted, limit)


@get(
    "/agent-commands",
    operation_id="list_agent_commands",
    opt=needs(Permission.AGENTS_READ),
    responses=problems(),
)
async def list_agent_commands(
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
    command_state: Annotated[str | None, QueryParameter(name="state")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[AgentCommand]:
    """List what all agents were told, newest first; `state=dead` is what nobody answered."""
    wanted = CommandFilter(None, _state(command_state), decode_cursor(cursor, UUID))
    return await _page(agent_actions, context, wanted, limit)


@get(
    "/agent-commands/{command_id:uuid}",
    operation_id="get_agent_command",
    opt=needs(Permission.AGENTS_READ),
    responses=_FOUND,
)
async def get_agent_command(
    command_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
) -> AgentCommand:
    """One command, and what became of it."""
    return await agent_actions.command(context, command_id)


@post(
    "/agent-commands/{command_id:uuid}/resend",
    status_code=202,
    operation_id="resend_agent_command",
    opt=needs(Permission.AGENTS_MANAGE),
    responses=_DECIDED,
)
async def resend_agent_command(
    command_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    agent_actions: NamedDependency[AgentActions],
) -> AgentCommand:
    """Send a dead command again; the answer is the new one."""
    return await agent_actions.resend(context, command_id)


async def _page(
    agent_actions: AgentActions, context: RequestContext, wanted: CommandFilter, limit: int
) -> Page[AgentCommand]:
    commands, total = await agent_actions.list_commands(context, wanted, limit=limit, cap=TOTAL_CAP)
    more = encode_cursor(commands[limit - 1].id) if len(commands) > limit else None
    return Page(commands[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


def _state(state: str | None) -> str | None:
    if state is not None and state not in list(CommandState):
        raise Invalid(f"There is no command state {state}: use one of {', '.join(CommandState)}.")
    return state


agents_router = Router(
    "/api/v1",
    route_handlers=[
        list_agents,
        get_agent,
        list_usage_of_agent,
        approve_agent,
        drain_agent,
        resume_agent,
        kick_agent,
        delete_agent,
        shutdown_agent,
        configure_agent,
        agent_metrics,
        list_commands_of_agent,
        list_agent_commands,
        get_agent_command,
        resend_agent_command,
    ],
    tags=["agents"],
)
