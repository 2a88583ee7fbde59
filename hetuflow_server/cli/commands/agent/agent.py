"""`hetuflow agent …`: what agents there are, and what they are told."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import click

from hetuflow_core.agent.commands import LIVE_STATES, AgentConfiguration, CommandState
from hetuflow_core.client import Hetuflow
from hetuflow_core.errors import Conflict
from hetuflow_core.resources.agents import AgentCommand, AgentDetail
from hetuflow_core.states import AgentStatus
from hetuflow_server.cli.commands.agent.token import token_group
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.name_suggestions import named_agent
from hetuflow_server.cli.options.instants import parse_since
from hetuflow_server.cli.options.params import parse_labels
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.agents import (
    agent_details,
    agent_table,
    command_details,
    command_table,
    usage_table,
)
from hetuflow_server.cli.output.long_lists import limit_option, page_size, take

# Long enough for an agent that waits in a poll, which is any that has a connection.
_ANSWER_SECONDS = 10.0

wait_option = click.option(
    "--wait",
    "seconds",
    type=click.FloatRange(min=0),
    default=_ANSWER_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the agent's answer.",
)


@click.group("agent")
def agent_group() -> None:
    """Agents: who they are, what they do, and what they are told."""


@agent_group.command("list")
@click.option("--status", type=click.Choice([status.value for status in AgentStatus]), help="Only those.")
@click.option("-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only with it. Repeatable.")
@limit_option
@server_command
def list_agents(invocation: Invocation, *, status: str | None, labels: tuple[str, ...], limit: int) -> None:
    """List agents.

    Example: hetuflow agent list --status draining -l zone=eu
    """
    wanted = parse_labels(labels)
    with invocation.client() as client:
        agents = client.agents(status=status, labels=wanted, page_size=page_size(limit))
        found = take(invocation, agents, limit)
    invocation.show(found, human=lambda: [agent_table(found)], brief=[agent.name for agent in found])


@agent_group.command("get")
@click.argument("name")
@server_command
def get_agent(invocation: Invocation, name: str) -> None:
    """Show an agent and what it holds now.

    Example: hetuflow agent get worker-1
    """
    with invocation.client() as client:
        agent = named_agent(client, name)
    _show_agent(invocation, agent)


def _decision(command: str, summary: str, decide: Callable[[Hetuflow, UUID], AgentDetail]) -> click.Command:
    """One of the commands that decide about an agent and show it afterwards."""

    def run(invocation: Invocation, name: str) -> None:
        with invocation.client() as client:
            agent = decide(client, named_agent(client, name).id)
        _show_agent(invocation, agent)

    run.__doc__ = f"{summary}\n\nExample: hetuflow agent {command} worker-1\n"
    return agent_group.command(command)(click.argument("name")(server_command(run)))


approve = _decision(
    "approve",
    "Let an agent that waits for approval take work.",
    lambda client, agent_id: client.approve_agent(agent_id),
)
drain = _decision(
    "drain",
    "Give an agent no more work, also after a restart; what it has it finishes.",
    lambda client, agent_id: client.drain_agent(agent_id),
)
resume = _decision(
    "resume",
    "Give a drained agent work again.",
    lambda client, agent_id: client.resume_agent(agent_id),
)


@agent_group.command("kick")
@click.argument("name")
@click.option(
    "--lose-running", is_flag=True, help="Run its work elsewhere at once, though it may still be running."
)
@YES
@server_command
def kick(invocation: Invocation, name: str, lose_running: bool) -> None:
    """End an agent's session: its process exits, and has to be started again.

    What it had not started goes to others at once. What it runs keeps its lease.

    Example: hetuflow agent kick worker-1 --lose-running
    """
    if lose_running:
        invocation.sure(f"Kick the agent {name} and run its work elsewhere, though it may still be running?")
    with invocation.client() as client:
        agent = client.kick_agent(named_agent(client, name).id, lose_running=lose_running)
    _show_agent(invocation, agent)


@agent_group.command("delete")
@click.argument("name")
@YES
@server_command
def delete(invocation: Invocation, name: str) -> None:
    """Forget an agent; refused while it holds work, unless it was kicked.

    Example: hetuflow agent delete worker-1
    """
    with invocation.client() as client:
        agent = named_agent(client, name)
        invocation.sure(f"Forget the agent {name}?")
        client.delete_agent(agent.id)
    invocation.tell_deleted("Agent", name)


@agent_group.command("shutdown")
@click.argument("name")
@click.option("--now", is_flag=True, help="End what runs instead of waiting for it.")
@wait_option
@server_command
def shutdown(invocation: Invocation, name: str, now: bool, seconds: float) -> None:
    """Stop an agent's process once what it runs has ended.

    Example: hetuflow agent shutdown worker-1 --now
    """
    with invocation.client() as client:
        command = client.shutdown_agent(named_agent(client, name).id, now=now)
        _await(invocation, client, command, seconds)


@agent_group.command("configure")
@click.argument("name")
@click.option("--slots", type=click.IntRange(1, 10_000), help="Most tasks at the same time.")
@click.option(
    "-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Instead of all of its own."
)
@click.option("--no-labels", is_flag=True, help="None but the automatic ones.")
@click.option(
    "--taint", "taints", multiple=True, metavar="KEY=VALUE:EFFECT", help="Instead of all of its own."
)
@click.option("--no-taints", is_flag=True, help="None at all.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option("--reset", is_flag=True, help="First forget what was given before; its own settings count.")
@wait_option
@server_command
def configure(
    invocation: Invocation,
    *,
    name: str,
    slots: int | None,
    labels: tuple[str, ...],
    no_labels: bool,
    taints: tuple[str, ...],
    no_taints: bool,
    log_level: str | None,
    reset: bool,
    seconds: float,
) -> None:
    """Change an agent's settings while it runs; it keeps them over restarts.

    Example: hetuflow agent configure worker-1 --slots 16 -l zone=eu
    """
    wanted = AgentConfiguration(
        slots=slots,
        labels={} if no_labels else parse_labels(labels) or None,
        taints=[] if no_taints else list(taints) or None,
        log_level=log_level,  # type: ignore[arg-type]  # one of click's choices
        reset=reset,
    )
    if wanted == AgentConfiguration():
        raise click.UsageError("Say what to change: --slots, --label, --taint, --log-level or --reset.")
    with invocation.client() as client:
        command = client.configure_agent(named_agent(client, name).id, wanted)
        _await(invocation, client, command, seconds)


@agent_group.command("metrics")
@click.argument("name")
@wait_option
@server_command
def metrics(invocation: Invocation, name: str, seconds: float) -> None:
    """Ask an agent how its host is doing.

    Example: hetuflow agent metrics worker-1 -o json
    """
    with invocation.client() as client:
        command = client.agent_metrics(named_agent(client, name).id)
        _await(invocation, client, command, seconds)


@agent_group.command("usage")
@click.argument("name")
@click.option(
    "--since", metavar="TIME", default="1h", show_default=True, help="From then on: 2h, 3d or an instant."
)
@click.option(
    "--minutes",
    type=click.IntRange(1, 1440),
    default=1,
    show_default=True,
    help="How many each line sums up.",
)
@limit_option
@server_command
def usage(invocation: Invocation, name: str, since: str, minutes: int, limit: int) -> None:
    """Show how busy an agent's host was, newest first.

    CPU and load are means; of memory and disk it is the least that was free.

    Example: hetuflow agent usage worker-1 --since 1d --minutes 15
    """
    with invocation.client() as client:
        samples = client.agent_usage(
            named_agent(client, name).id,
            since=parse_since(since, invocation.clock.now()),
            minutes=minutes,
            page_size=page_size(limit),
        )
        found = take(invocation, samples, limit)
    invocation.show(found, human=lambda: [usage_table(found)], brief=[one.at.isoformat() for one in found])


@agent_group.command("commands")
@click.argument("name", required=False)
@click.option("--state", type=click.Choice([state.value for state in CommandState]), help="Only those.")
@click.option("--dead", is_flag=True, help="Only those that nobody answered.")
@click.option("--resend", "resend_id", type=click.UUID, metavar="ID", help="Send this dead one again.")
@limit_option
@server_command
def commands(
    invocation: Invocation,
    *,
    name: str | None,
    state: str | None,
    dead: bool,
    resend_id: UUID | None,
    limit: int,
) -> None:
    """List what an agent was told, or all of them were, newest first.

    Example: hetuflow agent commands worker-1 --dead
    """
    with invocation.client() as client:
        if resend_id is not None:
            command = client.resend_agent_command(resend_id)
            invocation.show(command, human=lambda: command_details(command), brief=[command.id])
            return
        listed = client.agent_commands(
            agent_id=None if name is None else named_agent(client, name).id,
            state=CommandState.DEAD.value if dead else state,
            page_size=page_size(limit),
        )
        found = take(invocation, listed, limit)
    invocation.show(found, human=lambda: [command_table(found)], brief=[command.id for command in found])


agent_group.add_command(token_group)


def _show_agent(invocation: Invocation, agent: AgentDetail) -> None:
    invocation.show(agent, human=lambda: agent_details(agent), brief=[agent.name])


def _await(invocation: Invocation, client: Hetuflow, command: AgentCommand, seconds: float) -> None:
    """Show what became of a command; one that failed or was given up is an error, one under way is not."""
    command = client.wait_for_command(command.id, seconds)
    if command.state == CommandState.ACKNOWLEDGED and command.error is not None:
        raise Conflict(f"The agent {command.agent} did not do it: {command.error}")
    if command.state == CommandState.DEAD:
        raise Conflict(f"The agent {command.agent} was not reached: {command.error}")
    if command.state in LIVE_STATES:
        invocation.note(
            f"The agent has not answered yet: `hetuflow agent commands {command.agent}` shows when it does."
        )
    invocation.show(command, human=lambda: command_details(command), brief=[command.id])
