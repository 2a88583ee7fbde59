"""`hetuflow task explain`."""

from __future__ import annotations

from uuid import UUID

import click

from hetuflow_core.resources.explanations import AgentsLooked, Explanation, Obstacle
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.output.layout import Block, Cell, Column, Kind, Sheet, Table


@click.command("explain")
@click.argument("task_id", metavar="ID", type=click.UUID)
@server_command
def explain(invocation: Invocation, task_id: UUID) -> None:
    """Say why a task is where it is, and what would let it go on.

    Every condition is asked of the code that decides about it: limits, keys, overlap, the queue, and of each
    agent the first thing that rules it out.

    Example: hetuflow task explain 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        said = client.explain(task_id)
    invocation.show(said, human=lambda: blocks(said), brief=[said.code])


def blocks(said: Explanation) -> list[Block]:
    shown: list[Block] = [_head(said), said.summary]
    if further := [told for one in said.obstacles if (told := _told(one, said.summary))]:
        shown.append("\n".join(further))
    if said.nodes:
        shown.append(_nodes(said))
    if said.agents is not None:
        shown += _agents(said.agents)
    return shown


def _head(said: Explanation) -> Sheet:
    entries: list[tuple[str, Cell]] = [
        ("task", str(said.task_id)),
        ("job", f"{said.namespace}/{said.job}"),
        ("status", said.status),
        ("reason", said.reason),
        ("due", said.due_at),
        ("deadline", said.deadline_at),
        ("queue", _place(said)),
        *_claim(said),
        *_last_end(said),
        ("retry", None if said.retry is None else said.retry.message),
    ]
    return Sheet([(name, cell) for name, cell in entries if cell is not None])


def _place(said: Explanation) -> str | None:
    if said.place is None:
        return None
    more = " or more" if said.place.capped else ""
    return f"{said.place.higher} of higher priority, {said.place.earlier} earlier{more}"


def _claim(said: Explanation) -> list[tuple[str, Cell]]:
    claim = said.claim
    if claim is None:
        return []
    said_of = claim.progress or {}
    return [
        ("agent", claim.agent),
        ("started", claim.started_at),
        ("reserved until", claim.reserved_until),
        ("lease until", claim.lease_until),
        ("agent heard of", claim.agent_last_seen_at),
        ("progress", f"{said_of.get('percent', 0):g}% {said_of.get('message', '')}" if said_of else None),
    ]


def _last_end(said: Explanation) -> list[tuple[str, Cell]]:
    end = said.last_end
    if end is None:
        return []
    facts = [
        end.status,
        f"exit code {end.exit_code}" if end.exit_code is not None else None,
        f"signal {end.signal}" if end.signal is not None else None,
        end.reason,
        end.message,
    ]
    told = ", ".join(fact for fact in facts if fact)
    return [("last attempt", f"number {end.attempt} on {end.agent or 'no agent'}: {told}")]


def _told(one: Obstacle, summary: str) -> str:
    lines = [] if one.message == summary else [one.message]
    if one.tasks:
        lines.append(f"  held by: {', '.join(map(str, one.tasks))}")
    if one.remedy:
        lines.append(f"  what helps: {one.remedy}")
    return "\n".join(lines)


def _nodes(said: Explanation) -> Table:
    columns = [Column("NODE"), Column("WAITS"), Column("UNTIL", Kind.TIME), Column("ENDED"), Column("WHAT")]
    rows: list[list[Cell]] = [
        [one.node, one.reason, one.wake_at, f"{one.ended}/{one.total}", one.message] for one in said.nodes
    ]
    return Table(columns, rows)


def _agents(agents: AgentsLooked) -> list[Block]:
    elsewhere = f"; {agents.elsewhere} others serve other namespaces" if agents.elsewhere else ""
    total = f"{agents.serving} agents serve the namespace, {agents.able} could take it now{elsewhere}."
    if not agents.serving:
        return [total]
    columns = [Column("AGENT"), Column("REFUSED FOR", Kind.STATUS), Column("BECAUSE IT")]
    rows: list[list[Cell]] = [[one.agent, one.code, one.message] for one in agents.sample]
    shown: list[Block] = [total, Table(columns, rows)]
    if agents.serving > len(agents.sample):
        counts = [f"{one.agents} for {one.code}" for one in agents.refusals]
        shown.append(f"Only some are shown. In all: {', '.join(counts) or 'none refused'}.")
    return shown
