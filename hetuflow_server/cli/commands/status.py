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
from hetuflow_server.cli.output.cluster import binding_blocks, server_table, told_leader
from hetuflow_server.cli.output.layout import Block, Cell, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import LARGEST_PAGE

# More would not fit a screen; -o json has all there are.
_MOST_AGENTS = 15


@click.command("status")
@click.option("--most", metavar="N", type=click.IntRange(0, 100), default=5, help="How many of each list.")
@server_command
def status(invocation: Invocation, most: int) -> None:
    """Show what is queued and running right now, who works, what fails, what is late and what comes.

    Example: hetuflow status -o json
    """
    with invocation.client() as client:
        server, queue, leader = client.info(), client.status(most=most), client.leader()
        servers = [one for one in client.servers(page_size=LARGEST_PAGE) if one.status != "stopped"]
        namespaces = list(islice(client.namespaces(page_size=LARGEST_PAGE), LARGEST_PAGE))
        url = client.url
    told = {"leader": leader, "servers": servers, "namespaces": namespaces}
    invocation.show(
        {"url": url, "server": server, "queue": queue, **told},
        human=lambda: [
            _head(url, server, queue, leader),
            *_queues(queue.namespaces),
            *_agents(queue),
            *_troubles(queue),
            *_coming(queue),
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
            ("leader", told_leader(leader)),
            ("running", queue.running),
            ("reserved", queue.reserved),
            ("pending", f"{queue.pending}{more}"),
            ("held", f"{queue.held}{more}"),
            ("oldest due since", _waiting(queue.oldest_due_seconds)),
            ("failed in the last hour", queue.failed_last_hour),
            ("agents", _told_agents(queue.agent_counts)),
        ]
    )


def _told_agents(counts: AgentCounts) -> str:
    states = [
        ("online", counts.online),
        ("unreachable", counts.unreachable),
        ("draining", counts.draining),
        ("to be approved", counts.pending),
        ("offline", counts.offline),
    ]
    told = ", ".join(f"{count} {state}" for state, count in states if count) or "none"
    return f"{told}; {counts.free_slots} of {counts.slots} slots free"


def _queues(namespaces: list[NamespaceQueue]) -> list[Block]:
    if not namespaces:
        return []
    columns = [
        Column("NAMESPACE"),
        Column("RUNNING", Kind.NUMBER),
        Column("PENDING", Kind.NUMBER),
        Column("HELD", Kind.NUMBER),
        Column("OLDEST DUE SINCE"),
        Column("LATE", Kind.NUMBER),
    ]
    rows: list[list[Cell]] = [
        [
            one.namespace,
            one.running + one.reserved,
            one.pending,
            one.held,
            _waiting(one.oldest_due_seconds),
            one.late,
        ]
        for one in namespaces
    ]
    return [Table(columns, rows)]


def _agents(queue: QueueSummary) -> list[Block]:
    if not queue.agents:
        return ["No agent is registered: nothing will run until one is."]
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
    return [table, f"And {more} more: hetuflow agent list shows them."] if more > 0 else [table]


def _agent(agent: AgentSummary) -> list[Cell]:
    return [
        agent.name,
        agent.status if agent.reachable or agent.status != "online" else "unreachable",
        f"{agent.in_use} of {agent.slots}",
        ", ".join(f"{name}={value}" for name, value in agent.labels.items()),
        agent.version,
        agent.last_seen_at,
    ]


def _troubles(queue: QueueSummary) -> list[Block]:
    """Return what somebody may want to do something about."""
    shown: list[Block] = []
    if queue.failing:
        columns = [Column("FAILING NOW"), Column("SINCE", Kind.TIME), Column("TASK", Kind.ID), Column("WHY")]
        shown.append(
            Table(
                columns,
                [
                    [
                        f"{one.namespace}/{one.job}",
                        one.failed_at,
                        str(one.task_id),
                        _why(one.exit_code, one.reason),
                    ]
                    for one in queue.failing
                ],
            )
        )
    if queue.late:
        columns = [Column("LATE"), Column("DUE", Kind.TIME), Column("TASK", Kind.ID)]
        rows: list[list[Cell]] = [
            [f"{one.namespace}/{one.job}", one.due_at, str(one.task_id)] for one in queue.late
        ]
        shown += [Table(columns, rows), "hetuflow task explain TASK says what a task waits for."]
    if queue.late_schedules:
        shown.append(
            f"{queue.late_schedules} schedules are behind: their fires should have been made by now, "
            "which is what the leader does."
        )
    return shown


def _why(exit_code: int | None, reason: str | None) -> str:
    facts = [f"exit code {exit_code}" if exit_code is not None else None, reason]
    return ", ".join(fact for fact in facts if fact)


def _coming(queue: QueueSummary) -> list[Block]:
    if not queue.coming:
        return []
    columns = [Column("COMING"), Column("AT", Kind.TIME)]
    rows: list[list[Cell]] = [[f"{one.namespace}/{one.job}/{one.schedule}", one.at] for one in queue.coming]
    return [Table(columns, rows)]


def _waiting(seconds: float | None) -> str:
    """To the tenth of a second: more would only flicker."""
    return (
        "nothing is due" if seconds is None else format_duration(timedelta(seconds=round(max(seconds, 0), 1)))
    )
