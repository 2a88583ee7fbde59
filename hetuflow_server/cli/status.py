"""`hetuflow status`."""

from __future__ import annotations

from datetime import timedelta

import click

from hetuflow_core.durations import format_duration
from hetuflow_core.resources import AgentSummary, QueueSummary, ServerInfo
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.layout import Block, Cell, Column, Kind, Sheet, Table


@click.command("status")
@server_command
def status(invocation: Invocation) -> None:
    """Show what is queued and running right now, and the agents.

    Example: hetuflow status -o json
    """
    with invocation.client() as client:
        server, queue = client.info(), client.status()
        url = client.url
    invocation.show(
        {"url": url, "server": server, "queue": queue}, human=lambda: _blocks(url, server, queue), brief=[]
    )


def _blocks(url: str, server: ServerInfo, queue: QueueSummary) -> list[Block]:
    sheet = Sheet(
        [
            ("server", f"{url}, version {server.version}, schema {server.schema_revision}"),
            ("running", queue.running),
            ("reserved", queue.reserved),
            ("pending", queue.pending),
            ("held", queue.held),
            ("oldest due since", _waiting(queue.oldest_due_seconds)),
            ("failed in the last hour", queue.failed_last_hour),
        ]
    )
    if not queue.agents:
        return [sheet, "No agent is registered: nothing will run until one is."]
    columns = [
        Column("AGENT"),
        Column("STATUS", Kind.STATUS),
        Column("SLOTS USED"),
        Column("LABELS"),
        Column("VERSION"),
        Column("LAST SEEN", Kind.TIME),
    ]
    return [sheet, Table(columns, [_agent(agent) for agent in queue.agents])]


def _agent(agent: AgentSummary) -> list[Cell]:
    return [
        agent.name,
        agent.status if agent.reachable or agent.status != "online" else "unreachable",
        f"{agent.in_use} of {agent.slots}",
        ", ".join(f"{name}={value}" for name, value in agent.labels.items()),
        agent.version,
        agent.last_seen_at,
    ]


def _waiting(seconds: float | None) -> str:
    """To the tenth of a second: more would only flicker."""
    return (
        "nothing is due" if seconds is None else format_duration(timedelta(seconds=round(max(seconds, 0), 1)))
    )
