"""`hetuflow status`."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice

import click

from hetuflow_core.durations import format_duration
from hetuflow_core.resources.agents import AgentSummary
from hetuflow_core.resources.cluster import Leader, ServerInfo
from hetuflow_core.resources.status import AgentCounts, NamespaceQueue, QueueSummary
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.output.cluster import binding_blocks, leader_text, server_table
from hetuflow_server.cli.output.layout import Block, Cell, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import LARGEST_PAGE

# More do not fit on a screen; -o json lists all agents.
_MOST_AGENTS = 15


@click.command("status")
@click.option(
    "--most", metavar="N", type=click.IntRange(0, 100), default=5, help="Maximum number of entries per list."
)
@server_command
def status(invocation: Invocation, most: int) -> None:
    """Show the queue, agents, failing jobs, late tasks, upcoming fires and servers.

    Example: hetuflow status -o json
    """
    with invocation.client() as client:
        server, queue, leader = client.info(), client.status(most=most), client.leader()
        servers = [row for row in client.servers(page_size=LARGEST_PAGE) if row.status != "stopped"]
        namespaces = list(islice(client.namespaces(page_size=LARGEST_PAGE), LARGEST_PAGE))
        url = client.url
    cluster = {"leader": leader, "servers": servers, "namespaces": namespaces}
    invocation.show(
        {"url": url, "server": server, "queue": queue, **cluster},
        human=lambda: [
            _head(url, server, queue, leader),
            *_queues(queue.namespaces),
            *_agents(queue),
            *_problems(queue),
            *_upcoming(queue),
            server_table(servers),
            *binding_blocks(namespaces),
        ],
        brief=[],
    )


def _head(url: str, server: ServerInfo, queue: QueueSummary, leader: Leader) -> Sheet:
    more = " or more" if queue.capped else ""
    return Sheet(
        [
            ("server", f"{url}, version {server.version}, schema {server.schema_revision}"),
            ("leader", leader_text(leader)),
            ("running", queue.running),
            ("reserved", queue.reserved),
            ("pending", f"{queue.pending}{more}"),
            ("held", f"{queue.held}{more}"),
            ("oldest due for", _waiting(queue.oldest_due_seconds)),
            ("failed in the last hour", queue.failed_last_hour),
            ("agents", _agent_counts_text(queue.agent_counts)),
        ]
    )


def _agent_counts_text(counts: AgentCounts) -> str:
    states = [
        ("online", counts.online),
        ("unreachable", counts.unreachable),
        ("draining", counts.draining),
        ("waiting for approval", counts.pending),
        ("offline", counts.offline),
    ]
    text = ", ".join(f"{count} {state}" for state, count in states if count) or "none"
    return f"{text}; {counts.free_slots} of {counts.slots} slots free"


def _queues(namespaces: list[NamespaceQueue]) -> list[Block]:
    if not namespaces:
        return []
    columns = [
        Column("NAMESPACE"),
        Column("RUNNING", Kind.NUMBER),
        Column("PENDING", Kind.NUMBER),
        Column("HELD", Kind.NUMBER),
        Column("OLDEST DUE FOR"),
        Column("LATE", Kind.NUMBER),
    ]
    rows: list[list[Cell]] = [
        [
            queue.namespace,
            queue.running + queue.reserved,
            queue.pending,
            queue.held,
            _waiting(queue.oldest_due_seconds),
            queue.late,
        ]
        for queue in namespaces
    ]
    return [Table(columns, rows)]


def _agents(queue: QueueSummary) -> list[Block]:
    if not queue.agents:
        return ["No agent is registered: tasks wait until an agent is started."]
    columns = [
        Column("AGENT"),
        Column("STATUS", Kind.STATUS),
        Column("SLOTS USED"),
        Column("LABELS"),
        Column("VERSION"),
        Column("LAST SEEN", Kind.TIME),
    ]
    table = Table(columns, [_agent(agent) for agent in queue.agents[:_MOST_AGENTS]])
    more = queue.agent_counts.total - _MOST_AGENTS
    return [table, f"{more} more agents: see `hetuflow agent list`."] if more > 0 else [table]


def _agent(agent: AgentSummary) -> list[Cell]:
    return [
        agent.name,
        agent.status if agent.reachable or agent.status != "online" else "unreachable",
        f"{agent.in_use} of {agent.slots}",
        ", ".join(f"{name}={value}" for name, value in agent.labels.items()),
        agent.version,
        agent.last_seen_at,
    ]


def _problems(queue: QueueSummary) -> list[Block]:
    """Return the tables of problems: failing jobs, late tasks and late schedules."""
    shown: list[Block] = []
    if queue.failing:
        columns = [Column("FAILING NOW"), Column("SINCE", Kind.TIME), Column("TASK", Kind.ID), Column("WHY")]
        shown.append(
            Table(
                columns,
                [
                    [
                        f"{entry.namespace}/{entry.job}",
                        entry.failed_at,
                        str(entry.task_id),
                        _why(entry.exit_code, entry.reason),
                    ]
                    for entry in queue.failing
                ],
            )
        )
    if queue.late:
        columns = [Column("LATE"), Column("DUE", Kind.TIME), Column("TASK", Kind.ID)]
        rows: list[list[Cell]] = [
            [f"{entry.namespace}/{entry.job}", entry.due_at, str(entry.task_id)] for entry in queue.late
        ]
        shown += [Table(columns, rows), "`hetuflow task explain TASK` shows why a task waits."]
    if queue.late_schedules:
        shown.append(
            f"{queue.late_schedules} schedules are late: the leader has not created their due fires yet."
        )
    return shown


def _why(exit_code: int | None, reason: str | None) -> str:
    facts = [f"exit code {exit_code}" if exit_code is not None else None, reason]
    return ", ".join(fact for fact in facts if fact)


def _upcoming(queue: QueueSummary) -> list[Block]:
    if not queue.coming:
        return []
    columns = [Column("UPCOMING"), Column("AT", Kind.TIME)]
    rows: list[list[Cell]] = [
        [f"{fire.namespace}/{fire.job}/{fire.schedule}", fire.at] for fire in queue.coming
    ]
    return [Table(columns, rows)]


def _waiting(seconds: float | None) -> str:
    """Round to a tenth of a second: with --watch, more digits flicker."""
    return (
        "nothing is due" if seconds is None else format_duration(timedelta(seconds=round(max(seconds, 0), 1)))
    )
