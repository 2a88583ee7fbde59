"""Tables and drawings of flow runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from hetuflow_core.durations import format_duration
from hetuflow_core.flow import Graph, GraphNode, draw
from hetuflow_core.resources.flows import FlowRun, FlowRunDetail, FlowRunNode
from hetuflow_core.states import FlowNodeStatus
from hetuflow_server.cli.output.layout import Block, Cell, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.structured import as_line

_TENTH: Final = timedelta(milliseconds=100)
SIGNS: Final = {
    FlowNodeStatus.WAITING: "○",
    FlowNodeStatus.RUNNING: "●",
    FlowNodeStatus.SUCCEEDED: "✔",
    FlowNodeStatus.FAILED: "✘",
    FlowNodeStatus.CANCELLED: "⊗",
    FlowNodeStatus.SKIPPED: "◌",
}


def table(runs: Sequence[FlowRun]) -> Table:
    columns = [
        Column("ID", Kind.ID),
        Column("NAMESPACE", Kind.PLACE),
        Column("FLOW"),
        Column("STATUS", Kind.STATUS),
        Column("OPEN", Kind.NUMBER),
        Column("FAILED", Kind.NUMBER),
        Column("STARTED", Kind.TIME),
        Column("FINISHED", Kind.TIME),
    ]
    return Table(columns, [_row(run) for run in runs])


def details(run: FlowRunDetail) -> list[Block]:
    entries: list[tuple[str, Cell]] = [
        ("id", str(run.id)),
        ("flow", f"{run.namespace}/{run.job} version {run.job_version}"),
        (
            "status",
            run.status if run.ending is None or run.finished_at else f"{run.status}, ending {run.ending}",
        ),
        ("reason", ", ".join(part for part in (run.reason, run.message) if part) or None),
        ("params", as_line(run.params)),
        ("node of", None if run.parent_id is None else str(run.parent_id)),
        ("retry of", None if run.retry_of is None else str(run.retry_of)),
        ("started", run.started_at),
        ("finished", run.finished_at),
    ]
    return [Sheet([(name, cell) for name, cell in entries if cell is not None]), _nodes(run.nodes)]


def drawing(run: FlowRunDetail, now: datetime) -> list[Block]:
    """Draw the graph of a flow run, one line per node."""
    nodes = {node.name: node for node in run.nodes}
    graph = Graph(GraphNode(name=node.name, needs=tuple(node.needs)) for node in run.nodes)
    width = max((len(name) for name in nodes), default=0)
    texts = {name: f"{name:<{width}}  {_state(node, now)}" for name, node in nodes.items()}
    return ["\n".join(draw(graph, lambda name: SIGNS[FlowNodeStatus(nodes[name].status)], texts))]


def _state(node: FlowRunNode, now: datetime) -> str:
    parts = [node.status]
    if node.total != 1 and node.started:
        failed = f", {node.failed} failed" if node.failed else ""
        parts.append(f"{node.succeeded + node.failed + node.skipped}/{node.total}{failed}")
    if node.started_at is not None and node.status != FlowNodeStatus.SKIPPED:
        took = (node.finished_at or now) - node.started_at
        parts.append(format_duration(took - took % _TENTH) if took > _TENTH else "0s")
    if node.status == FlowNodeStatus.RUNNING and node.does == "approval":
        approvers = f" by {', '.join(node.approvers)}" if node.approvers else ""
        parts.append(f"waits for approval{approvers}")
    elif node.reason:
        parts.append(node.reason)
    if node.decided_by:
        parts.append(f"by {node.decided_by}")
    if node.comment or node.message:
        parts.append(f'"{node.comment or node.message}"')
    return "  ".join(parts)


def _row(run: FlowRun) -> list[Cell]:
    return [
        str(run.id),
        run.namespace,
        run.job,
        run.status,
        run.nodes_open,
        run.nodes_failed,
        run.started_at,
        run.finished_at,
    ]


def _nodes(nodes: Sequence[FlowRunNode]) -> Table:
    columns = [
        Column("NODE"),
        Column("KIND"),
        Column("STATUS", Kind.STATUS),
        Column("DONE"),
        Column("TASK", Kind.ID),
        Column("STARTED", Kind.TIME),
        Column("FINISHED", Kind.TIME),
        Column("REASON"),
    ]
    return Table(columns, [_node(node) for node in nodes])


def _node(node: FlowRunNode) -> list[Cell]:
    why = [node.reason, node.message, node.decided_by and f"by {node.decided_by}", node.comment]
    return [
        node.name,
        node.does,
        node.status,
        f"{node.succeeded + node.failed + node.skipped}/{node.total}" if node.started else None,
        None if node.task_id is None else str(node.task_id),
        node.started_at,
        node.finished_at,
        ", ".join(part for part in why if part),
    ]
