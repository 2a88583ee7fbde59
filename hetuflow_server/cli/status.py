"""`hetuflow status`."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice

import click

from hetuflow_core.durations import format_duration
from hetuflow_core.resources import AgentSummary, Leader, QueueSummary, ServerInfo
from hetuflow_server.cli.cluster_view import binding_blocks, server_table, told_leader
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.layout import Block, Cell, Column, Kind, Sheet, Table
from hetuflow_server.cli.listing import LARGEST_PAGE


@click.command("status")
@server_command
def status(invocation: Invocation) -> None:
    """Show what is queued and running right now, the agents, and the servers with what they look after.

    Example: hetuflow status -o json
    """
    with invocation.client() as client:
        server, queue, leader = client.info(), client.status(), client.leader()
        servers = [one for one in client.servers(page_size=LARGEST_PAGE) if one.status != "stopped"]
        namespaces = list(islice(client.namespaces(page_size=LARGEST_PAGE), LARGEST_PAGE))
        url = client.url
    told = {"leader": leader, "servers": servers, "namespaces": namespaces}
    invocation.show(
        {"url": url, "server": server, "queue": queue, **told},
        human=lambda: [
            *_blocks(url, server, queue, leader),
            server_table(servers),
            *binding_blocks(namespaces),
        ],
        brief=[],
    )


def _blocks(url: str, server: ServerInfo, queue: QueueSummary, leader: Leader) -> list[Block]:
    sheet = Sheet(
        [
            ("server", f"{url}, version {server.version}, schema {server.schema_revision}"),
            ("leader", told_leader(leader)),
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
