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
    """Explain why a task has its status and does not run yet.

    Shows limits, concurrency keys, overlap, the position in the queue, and for each agent the first reason
    why it cannot run the task.

    Example: hetuflow task explain 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        explanation = client.explain(task_id)
    invocation.show(explanation, human=lambda: blocks(explanation), brief=[explanation.code])


def blocks(explanation: Explanation) -> list[Block]:
    shown: list[Block] = [_head(explanation), explanation.summary]
    if further := [
        text for obstacle in explanation.obstacles if (text := _obstacle_text(obstacle, explanation.summary))
    ]:
        shown.append("\n".join(further))
    if explanation.nodes:
        shown.append(_nodes(explanation))
    if explanation.agents is not None:
        shown += _agents(explanation.agents)
    return shown


def _head(explanation: Explanation) -> Sheet:
    entries: list[tuple[str, Cell]] = [
        ("task", str(explanation.task_id)),
        ("job", f"{explanation.namespace}/{explanation.job}"),
        ("status", explanation.status),
        ("reason", explanation.reason),
        ("due", explanation.due_at),
        ("deadline", explanation.deadline_at),
        ("queue", _place(explanation)),
        *_claim(explanation),
        *_last_end(explanation),
        ("retry", None if explanation.retry is None else explanation.retry.message),
    ]
    return Sheet([(name, cell) for name, cell in entries if cell is not None])


def _place(explanation: Explanation) -> str | None:
    if explanation.place is None:
        return None
    more = " or more" if explanation.place.capped else ""
    return f"{explanation.place.higher} of higher priority, {explanation.place.earlier} earlier{more}"


def _claim(explanation: Explanation) -> list[tuple[str, Cell]]:
    claim = explanation.claim
    if claim is None:
        return []
    progress = claim.progress or {}
    return [
        ("agent", claim.agent),
        ("started", claim.started_at),
        ("reserved until", claim.reserved_until),
        ("lease until", claim.lease_until),
        ("agent last seen", claim.agent_last_seen_at),
        ("progress", f"{progress.get('percent', 0):g}% {progress.get('message', '')}" if progress else None),
    ]


def _last_end(explanation: Explanation) -> list[tuple[str, Cell]]:
    end = explanation.last_end
    if end is None:
        return []
    facts = [
        end.status,
        f"exit code {end.exit_code}" if end.exit_code is not None else None,
        f"signal {end.signal}" if end.signal is not None else None,
        end.reason,
        end.message,
    ]
    text = ", ".join(fact for fact in facts if fact)
    return [("last attempt", f"number {end.attempt} on {end.agent or 'no agent'}: {text}")]


def _obstacle_text(obstacle: Obstacle, summary: str) -> str:
    lines = [] if obstacle.message == summary else [obstacle.message]
    if obstacle.tasks:
        lines.append(f"  held by: {', '.join(map(str, obstacle.tasks))}")
    if obstacle.remedy:
        lines.append(f"  to fix: {obstacle.remedy}")
    return "\n".join(lines)


def _nodes(explanation: Explanation) -> Table:
    columns = [
        Column("NODE"),
        Column("WAITS FOR"),
        Column("UNTIL", Kind.TIME),
        Column("ENDED"),
        Column("DETAIL"),
    ]
    rows: list[list[Cell]] = [
        [node.node, node.reason, node.wake_at, f"{node.ended}/{node.total}", node.message]
        for node in explanation.nodes
    ]
    return Table(columns, rows)


def _agents(agents: AgentsLooked) -> list[Block]:
    elsewhere = f"; {agents.elsewhere} other agents serve other namespaces" if agents.elsewhere else ""
    total = f"{agents.serving} agents serve the namespace, {agents.able} could run the task now{elsewhere}."
    if not agents.serving:
        return [total]
    columns = [Column("AGENT"), Column("CODE", Kind.STATUS), Column("REASON")]
    rows: list[list[Cell]] = [[agent.agent, agent.code, agent.message] for agent in agents.sample]
    shown: list[Block] = [total, Table(columns, rows)]
    if agents.serving > len(agents.sample):
        counts = [f"{refusal.code} {refusal.agents}" for refusal in agents.refusals]
        shown.append(f"Not all agents are shown. Reasons in total: {', '.join(counts) or 'none'}.")
    return shown
