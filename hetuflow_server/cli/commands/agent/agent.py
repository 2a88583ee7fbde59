"""`hetuflow agent …`: list and manage agents and send commands to them."""

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

# Every connected agent has a waiting poll, so it responds well within this time.
_ANSWER_SECONDS = 10.0

wait_option = click.option(
    "--wait",
    "seconds",
    type=click.FloatRange(min=0),
    default=_ANSWER_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the agent's response.",
)


@click.group("agent")
def agent_group() -> None:
    """List, drain, configure, stop and delete agents; manage their tokens."""


@agent_group.command("list")
@click.option(
    "--status",
    type=click.Choice([status.value for status in AgentStatus]),
    help="Only agents with this status.",
)
@click.option(
    "-l",
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only agents with this label. Repeatable.",
)
@limit_option
@server_command
def list_agents(invocation: Invocation, *, status: str | None, labels: tuple[str, ...], limit: int) -> None:
    """List agents.

    Example: hetuflow agent list --status draining -l zone=eu
    """
    with invocation.client() as client:
        agents = client.agents(status=status, labels=parse_labels(labels), page_size=page_size(limit))
        listed = take(invocation, agents, limit)
    invocation.show(listed, human=lambda: [agent_table(listed)], brief=[agent.name for agent in listed])


@agent_group.command("get")
@click.argument("name")
@server_command
def get_agent(invocation: Invocation, name: str) -> None:
    """Show an agent and the instances that it holds.

    Example: hetuflow agent get worker-1
    """
    with invocation.client() as client:
        agent = named_agent(client, name)
    _show_agent(invocation, agent)


def _decision(command: str, summary: str, decide: Callable[[Hetuflow, UUID], AgentDetail]) -> click.Command:
    """Declare a command that changes the status of an agent and shows the agent."""

    def run(invocation: Invocation, name: str) -> None:
        with invocation.client() as client:
            agent = decide(client, named_agent(client, name).id)
        _show_agent(invocation, agent)

    run.__doc__ = f"{summary}\n\nExample: hetuflow agent {command} worker-1\n"
    return agent_group.command(command)(click.argument("name")(server_command(run)))


approve = _decision(
    "approve",
    "Approve an agent that waits for approval, so that it gets work.",
    lambda client, agent_id: client.approve_agent(agent_id),
)
drain = _decision(
    "drain",
    "Drain an agent.\n\nIt finishes its instances and gets no new ones, even after a restart.",
    lambda client, agent_id: client.drain_agent(agent_id),
)
resume = _decision(
    "resume",
    "Resume a drained agent.",
    lambda client, agent_id: client.resume_agent(agent_id),
)


@agent_group.command("kick")
@click.argument("name")
@click.option(
    "--lose-running",
    is_flag=True,
    help="Run its instances elsewhere at once, although they may still be running.",
)
@YES
@server_command
def kick(invocation: Invocation, name: str, lose_running: bool) -> None:
    """End an agent's session, so that its process exits.

    The agent must be started again. Instances that it has not started go to other agents at once. Running
    instances keep their lease.

    Example: hetuflow agent kick worker-1 --lose-running
    """
    if lose_running:
        invocation.confirm(
            f"Kick the agent {name} and run its instances elsewhere, although they may still be running?"
        )
    with invocation.client() as client:
        agent = client.kick_agent(named_agent(client, name).id, lose_running=lose_running)
    _show_agent(invocation, agent)


@agent_group.command("delete")
@click.argument("name")
@YES
@server_command
def delete(invocation: Invocation, name: str) -> None:
    """Delete an agent.

    This is refused while the agent holds instances, unless it was kicked.

    Example: hetuflow agent delete worker-1
    """
    with invocation.client() as client:
        agent = named_agent(client, name)
        invocation.confirm(f"Delete the agent {name}?")
        client.delete_agent(agent.id)
    invocation.show_deleted("Agent", name)


@agent_group.command("shutdown")
@click.argument("name")
@click.option("--now", is_flag=True, help="End running instances instead of waiting for them.")
@wait_option
@server_command
def shutdown(invocation: Invocation, name: str, now: bool, seconds: float) -> None:
    """Stop an agent's process after its running instances have ended.

    Example: hetuflow agent shutdown worker-1 --now
    """
    with invocation.client() as client:
        command = client.shutdown_agent(named_agent(client, name).id, now=now)
        _await(invocation, client, command, seconds)


@agent_group.command("configure")
@click.argument("name")
@click.option("--slots", type=click.IntRange(1, 10_000), help="Maximum number of concurrent instances.")
@click.option(
    "-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Replace all labels. Repeatable."
)
@click.option("--no-labels", is_flag=True, help="Remove all labels except the automatic ones.")
@click.option(
    "--taint", "taints", multiple=True, metavar="KEY=VALUE:EFFECT", help="Replace all taints. Repeatable."
)
@click.option("--no-taints", is_flag=True, help="Remove all taints.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Set the log level."
)
@click.option(
    "--reset",
    is_flag=True,
    help="First discard earlier changes: the agent's configuration file applies again.",
)
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
    """Change an agent's settings while it runs; restarts keep them.

    Example: hetuflow agent configure worker-1 --slots 16 -l zone=eu
    """
    changes = AgentConfiguration(
        slots=slots,
        labels={} if no_labels else parse_labels(labels) or None,
        taints=[] if no_taints else list(taints) or None,
        log_level=log_level,  # type: ignore[arg-type]  # one of click's choices
        reset=reset,
    )
    if changes == AgentConfiguration():
        raise click.UsageError("Nothing to change: give --slots, --label, --taint, --log-level or --reset.")
    with invocation.client() as client:
        command = client.configure_agent(named_agent(client, name).id, changes)
        _await(invocation, client, command, seconds)


@agent_group.command("metrics")
@click.argument("name")
@wait_option
@server_command
def metrics(invocation: Invocation, name: str, seconds: float) -> None:
    """Show the current resource usage of an agent's host and tasks.

    Example: hetuflow agent metrics worker-1 -o json
    """
    with invocation.client() as client:
        command = client.agent_metrics(named_agent(client, name).id)
        _await(invocation, client, command, seconds)


@agent_group.command("usage")
@click.argument("name")
@click.option(
    "--since", metavar="TIME", default="1h", show_default=True, help="Start of the range: 2h, 3d or a time."
)
@click.option(
    "--minutes",
    type=click.IntRange(1, 1440),
    default=1,
    show_default=True,
    help="Minutes per line.",
)
@limit_option
@server_command
def usage(invocation: Invocation, name: str, since: str, minutes: int, limit: int) -> None:
    """Show past resource usage of an agent's host, newest first.

    CPU and load are averages; memory and disk are the lowest free amounts.

    Example: hetuflow agent usage worker-1 --since 1d --minutes 15
    """
    with invocation.client() as client:
        samples = client.agent_usage(
            named_agent(client, name).id,
            since=parse_since(since, invocation.clock.now()),
            minutes=minutes,
            page_size=page_size(limit),
        )
        listed = take(invocation, samples, limit)
    invocation.show(
        listed, human=lambda: [usage_table(listed)], brief=[sample.at.isoformat() for sample in listed]
    )


@agent_group.command("commands")
@click.argument("name", required=False)
@click.option(
    "--state", type=click.Choice([state.value for state in CommandState]), help="Only in this state."
)
@click.option("--dead", is_flag=True, help="Only commands that were not delivered.")
@click.option("--resend", "resend_id", type=click.UUID, metavar="ID", help="Send this dead command again.")
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
    """List commands to an agent, or to all agents, newest first.

    Example: hetuflow agent commands worker-1 --dead
    """
    with invocation.client() as client:
        if resend_id is not None:
            command = client.resend_agent_command(resend_id)
            invocation.show(command, human=lambda: command_details(command), brief=[command.id])
            return
        pages = client.agent_commands(
            agent_id=None if name is None else named_agent(client, name).id,
            state=CommandState.DEAD.value if dead else state,
            page_size=page_size(limit),
        )
        listed = take(invocation, pages, limit)
    invocation.show(listed, human=lambda: [command_table(listed)], brief=[command.id for command in listed])


agent_group.add_command(token_group)


def _show_agent(invocation: Invocation, agent: AgentDetail) -> None:
    invocation.show(agent, human=lambda: agent_details(agent), brief=[agent.name])


def _await(invocation: Invocation, client: Hetuflow, command: AgentCommand, seconds: float) -> None:
    """Wait for a command and show it; raise Conflict if it failed or was not delivered."""
    command = client.wait_for_command(command.id, seconds)
    if command.state == CommandState.ACKNOWLEDGED and command.error is not None:
        raise Conflict(f"The agent {command.agent} reported an error: {command.error}")
    if command.state == CommandState.DEAD:
        raise Conflict(f"The agent {command.agent} could not be reached: {command.error}")
    if command.state in LIVE_STATES:
        invocation.note(f"The agent has not responded yet: see `hetuflow agent commands {command.agent}`.")
    invocation.show(command, human=lambda: command_details(command), brief=[command.id])
