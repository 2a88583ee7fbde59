"""Reading runs of flows and their nodes, and locking runs before anything of them is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core.flow import ItemCounts, NodeState, UpstreamCounts
from hetuflow_core.states import FlowNodeStatus
from hetuflow_server.postgres.arrays import Uuids
from hetuflow_server.postgres.connection import Connection


@dataclass(frozen=True, slots=True)
class LockedRun:
    id: UUID
    namespace_id: int
    job_id: UUID
    job_version: int
    parent_id: UUID | None
    depth: int
    retry_of: UUID | None
    status: str
    ending: str | None
    reason: str | None
    message: str | None
    params: dict[str, Any]
    priority: int
    nodes_open: int
    fire_at: datetime


@dataclass(frozen=True, slots=True)
class NodeRow:
    node: str
    status: FlowNodeStatus
    reason: str | None
    tally: UpstreamCounts
    total: int
    # How many of its items an earlier run has done.
    reused: int
    counts: ItemCounts
    output: Any

    @property
    def state(self) -> NodeState:
        return NodeState(self.status, self.tally)


NODE_COLUMNS = """n.node, n.status, n.reason, n.ups_succeeded, n.ups_failed, n.ups_skipped, n.total, n.reused,
          n.started, n.succeeded, n.failed, n.skipped, n.output"""

_RUNS_OF = """
SELECT DISTINCT flow_run_id FROM sched_task_instance
WHERE {by} = ANY(%(ids)s::uuid[]) AND flow_run_id IS NOT NULL"""

_LOCK = """
SELECT id, namespace_id, job_id, job_version, parent_id, depth, retry_of, status, ending, reason, message,
       params, priority, nodes_open, fire_at
FROM sched_flow_run WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR UPDATE"""


def node_row(row: Any) -> NodeRow:
    return NodeRow(
        row.node,
        FlowNodeStatus(row.status),
        row.reason,
        UpstreamCounts(row.ups_succeeded, row.ups_failed, row.ups_skipped),
        row.total,
        row.reused,
        ItemCounts(row.started, row.succeeded, row.failed, row.skipped),
        row.output,
    )


async def runs_of_instances(connection: Connection, instances: Sequence[UUID]) -> list[UUID]:
    """Return the runs that live instances are nodes of, without locking anything."""
    rows = await connection.execute(_RUNS_OF.format(by="id"), {"ids": Uuids(instances)})
    return list(rows.scalars())


async def runs_of_tasks(connection: Connection, tasks: Sequence[UUID]) -> list[UUID]:
    rows = await connection.execute(_RUNS_OF.format(by="task_id"), {"ids": Uuids(tasks)})
    return list(rows.scalars())


async def in_flows(connection: Connection, instances: Sequence[UUID]) -> set[UUID]:
    """Return those of these instances that are nodes of flows."""
    rows = await connection.execute(
        "SELECT id FROM sched_task_instance WHERE id = ANY(%(ids)s::uuid[]) AND flow_run_id IS NOT NULL",
        {"ids": Uuids(instances)},
    )
    return set(rows.scalars())


async def lock_runs(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, LockedRun]:
    """Lock runs in the order of their ids; before schedules, tasks and instances."""
    if not ids:
        return {}
    rows = await connection.execute(_LOCK, {"ids": sorted(set(ids))})
    return {row.id: LockedRun(**row.as_dict()) for row in rows}


async def nodes(connection: Connection, run: UUID, names: Sequence[str]) -> dict[str, NodeRow]:
    rows = await connection.execute(
        f"SELECT {NODE_COLUMNS} FROM sched_flow_node n "
        "WHERE n.flow_run_id = %(run)s AND n.node = ANY(%(names)s::text[])",
        {"run": run, "names": list(names)},
    )
    return {row.node: node_row(row) for row in rows}


_UNSTARTED = f"""
SELECT {NODE_COLUMNS} FROM sched_flow_node n
WHERE n.flow_run_id = %(run)s AND n.status = 'running' AND n.started < n.total AND n.items IS NOT NULL"""


async def unstarted(connection: Connection, run: UUID) -> dict[str, NodeRow]:
    """Return running nodes not all of whose items have been started."""
    rows = await connection.execute(_UNSTARTED, {"run": run})
    return {row.node: node_row(row) for row in rows}


# Each with its place, because a run that builds upon another has only what that one has not done.
_ITEMS = """
SELECT (i.value->0)::integer AS place, i.value->1 AS value
FROM sched_flow_node n
CROSS JOIN LATERAL jsonb_array_elements(n.items) WITH ORDINALITY AS i(value, number)
WHERE n.flow_run_id = %(run)s AND n.node = %(node)s
ORDER BY i.number OFFSET %(first)s LIMIT %(count)s"""


async def items(
    connection: Connection, run: UUID, node: str, *, first: int, count: int
) -> list[tuple[int, Any]]:
    """Return (place, value) of items that are to be run, from the first-th of them on."""
    rows = await connection.execute(_ITEMS, {"run": run, "node": node, "first": first, "count": count})
    return [(row.place, row.value) for row in rows]


_OWN = """
SELECT i.id, i.status, i.held_reason, i.cancel_requested, t.reason
FROM sched_task_instance i JOIN sched_task t ON t.id = i.task_id WHERE i.task_id = %(run)s"""


@dataclass(frozen=True, slots=True)
class OwnInstance:
    """The instance that stands for a run in the queue."""

    id: UUID
    status: str
    held_reason: str | None
    cancel_requested: bool
    # Of its task.
    reason: str | None


async def own_instance(connection: Connection, run: UUID) -> OwnInstance | None:
    row = (await connection.execute(_OWN, {"run": run})).one_or_none()
    return None if row is None else OwnInstance(**row.as_dict())


@dataclass(frozen=True, slots=True)
class DueFlow:
    """A flow's own task whose run is to begin."""

    task_id: UUID
    instance_id: UUID
    placement_id: int
    concurrency_key: str | None
    parent_id: UUID | None
    # Of the run it is a node of.
    depth: int | None
    params: dict[str, Any]
    retry_of: UUID | None
    from_failed: bool


_DUE_FLOW = """
SELECT t.id AS task_id, i.id AS instance_id, i.placement_id, i.concurrency_key, t.flow_run_id AS parent_id,
       (SELECT r.depth FROM sched_flow_run r WHERE r.id = t.flow_run_id) AS depth, t.params, t.retry_of,
       coalesce((t.flow_context->>'from_failed')::boolean, false) AS from_failed
FROM sched_task t JOIN sched_task_instance i ON i.task_id = t.id
WHERE t.id = %(id)s AND i.held_reason = 'flow' AND i.due_at <= clock_timestamp()
FOR UPDATE OF i"""


async def due_flow(connection: Connection, id_: UUID) -> DueFlow | None:
    """Lock the instance of a locked flow's task whose time has come; None: it runs, or is not due."""
    row = (await connection.execute(_DUE_FLOW, {"id": id_})).one_or_none()
    return None if row is None else DueFlow(**row.as_dict())


_LIVE = """
SELECT id FROM sched_task_instance
WHERE flow_run_id = %(run)s AND NOT cancel_requested ORDER BY id LIMIT %(most)s"""


async def live_of(connection: Connection, run: UUID, most: int) -> list[UUID]:
    """Return instances of a run's nodes that nobody was asked to end yet."""
    return list((await connection.execute(_LIVE, {"run": run, "most": most})).scalars())


_STRAYS = """
SELECT i.id FROM sched_task_instance i
JOIN sched_task t ON t.id = i.task_id
JOIN sched_flow_node n ON n.flow_run_id = i.flow_run_id AND n.node = t.flow_node
WHERE i.flow_run_id = %(run)s AND NOT i.cancel_requested AND n.finished_at IS NOT NULL
ORDER BY i.id LIMIT %(most)s"""


async def strays_of(connection: Connection, run: UUID, most: int) -> list[UUID]:
    """Return instances of nodes that somebody has ended by hand."""
    return list((await connection.execute(_STRAYS, {"run": run, "most": most})).scalars())


_OUTPUTS = """
SELECT node, output FROM sched_flow_node
WHERE flow_run_id = %(run)s AND node = ANY(%(nodes)s::text[]) AND output IS NOT NULL"""


async def outputs(connection: Connection, run: UUID, names: Sequence[str]) -> dict[str, Any]:
    rows = await connection.execute(_OUTPUTS, {"run": run, "nodes": list(names)})
    return {row.node: row.output for row in rows}


# The tasks of a run's nodes have the time of the run: their ids lie in one millisecond.
_ITEM_OUTPUTS = """
SELECT map_index, output FROM sched_task
WHERE id BETWEEN %(first)s AND %(last)s AND flow_run_id = %(run)s AND flow_node = %(node)s
  AND status = 'succeeded'"""


async def item_outputs(
    connection: Connection, run: UUID, node: str, first: UUID, last: UUID
) -> dict[int, Any]:
    """Return {place: output} of those of a mapped node's items that this very run has done."""
    rows = await connection.execute(_ITEM_OUTPUTS, {"run": run, "node": node, "first": first, "last": last})
    return {row.map_index: row.output for row in rows}


async def retry_of(connection: Connection, run: UUID) -> UUID | None:
    """Return the run that this one builds upon."""
    row = await connection.execute("SELECT retry_of FROM sched_flow_run WHERE id = %(run)s", {"run": run})
    found: UUID | None = row.scalar_one_or_none()
    return found


@dataclass(frozen=True, slots=True)
class EarlierNode:
    status: FlowNodeStatus
    total: int
    # [place, value] of those it had to run.
    items: list[list[Any]] | None


async def earlier_nodes(connection: Connection, run: UUID, names: Sequence[str]) -> dict[str, EarlierNode]:
    """Return nodes of a run that has ended, to build another upon it."""
    rows = await connection.execute(
        "SELECT node, status, total, items FROM sched_flow_node "
        "WHERE flow_run_id = %(run)s AND node = ANY(%(names)s::text[])",
        {"run": run, "names": list(names)},
    )
    return {row.node: EarlierNode(FlowNodeStatus(row.status), row.total, row.items) for row in rows}


_SUCCEEDED_ITEMS = """
SELECT map_index FROM sched_task
WHERE id BETWEEN %(first)s AND %(last)s AND flow_run_id = %(run)s AND flow_node = %(node)s
  AND status IN ('succeeded', 'skipped')"""


async def succeeded_items(connection: Connection, run: UUID, node: str, first: UUID, last: UUID) -> set[int]:
    rows = await connection.execute(
        _SUCCEEDED_ITEMS, {"run": run, "node": node, "first": first, "last": last}
    )
    return set(rows.scalars())
