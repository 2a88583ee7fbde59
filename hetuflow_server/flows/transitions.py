"""The verbs that change the status of flow runs and of their nodes: nothing else writes it.

All of them are for transactions that have locked the run; `app/end_hooks.py` has the lock order. Status
values are literals, and every statement names the state it starts from: zero rows is an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from hetuflow_core.flow import UpstreamCounts
from hetuflow_core.states import FlowNodeStatus, FlowRunStatus
from hetuflow_server.flows.store import NODE_COLUMNS, NodeRow, node_row
from hetuflow_server.postgres.batches import Int, transpose
from hetuflow_server.postgres.connection import Connection


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run whose own instance was just set running."""

    id: UUID
    namespace_id: int
    job_id: UUID
    job_version: int
    parent_id: UUID | None
    depth: int
    retry_of: UUID | None
    params: str
    priority: int
    nodes_open: int
    fire_at: datetime
    deadline_at: datetime | None


_BEGIN = """
INSERT INTO sched_flow_run (id, namespace_id, job_id, job_version, parent_id, depth, retry_of, status, params,
                            priority, nodes_open, fire_at, deadline_at)
VALUES (%(id)s, %(namespace_id)s, %(job_id)s, %(job_version)s, %(parent_id)s, %(depth)s, %(retry_of)s,
        'running', %(params)s::jsonb, %(priority)s, %(nodes_open)s, %(fire_at)s, %(deadline_at)s)
ON CONFLICT (id) DO NOTHING RETURNING id"""

_ADD_NODES = """
INSERT INTO sched_flow_node (flow_run_id, node, namespace_id, status)
SELECT %(run)s, node, %(namespace_id)s, 'waiting' FROM unnest(%(nodes)s::text[]) AS n(node)"""


async def begin(connection: Connection, run: NewRun, nodes: Sequence[str]) -> bool:
    """Insert a run and its nodes, all of them waiting; False: it was there already."""
    made = await connection.execute(
        _BEGIN, {name: getattr(run, name) for name in NewRun.__dataclass_fields__}
    )
    if made.scalar_one_or_none() is None:
        return False
    await connection.execute(
        _ADD_NODES, {"run": run.id, "namespace_id": run.namespace_id, "nodes": list(nodes)}
    )
    return True


@dataclass(frozen=True, slots=True)
class NodeStart:
    node: str
    total: Int = 1
    started: Int = 0
    # Items that ended without a task: an earlier run did them, or they could not be made.
    succeeded: Int = 0
    failed: Int = 0
    reason: str | None = None
    message: str | None = None
    # JSON
    items: str | None = None
    reused: Int = 0
    wake_at: datetime | None = None
    event_name: str | None = None


_START = f"""
UPDATE sched_flow_node n
SET status = 'running', started_at = clock_timestamp(), total = s.total, started = s.started,
    succeeded = s.succeeded, failed = s.failed, reason = s.reason, message = s.message,
    items = s.items::jsonb, reused = s.reused, wake_at = s.wake_at, event_name = s.event_name
FROM unnest(%(node)s::text[], %(total)s::integer[], %(started)s::integer[], %(succeeded)s::integer[],
            %(failed)s::integer[], %(reason)s::text[], %(message)s::text[], %(items)s::text[],
            %(reused)s::integer[], %(wake_at)s::timestamptz[], %(event_name)s::text[])
  AS s(node, total, started, succeeded, failed, reason, message, items, reused, wake_at, event_name)
WHERE n.flow_run_id = %(run)s AND n.node = s.node AND n.status = 'waiting'
RETURNING {NODE_COLUMNS}"""


async def start_nodes(connection: Connection, run: UUID, starts: Sequence[NodeStart]) -> dict[str, NodeRow]:
    rows = await connection.execute(_START, {"run": run, **transpose(NodeStart, starts)})
    return {row.node: node_row(row) for row in rows}


@dataclass(frozen=True, slots=True)
class ItemCount:
    """How many more of a node's items were started and have ended."""

    node: str
    started: Int = 0
    succeeded: Int = 0
    failed: Int = 0
    skipped: Int = 0
    message: str | None = None


_COUNT = f"""
UPDATE sched_flow_node n
SET started = n.started + c.started, succeeded = n.succeeded + c.succeeded, failed = n.failed + c.failed,
    skipped = n.skipped + c.skipped, message = coalesce(c.message, n.message)
FROM unnest(%(node)s::text[], %(started)s::integer[], %(succeeded)s::integer[], %(failed)s::integer[],
            %(skipped)s::integer[], %(message)s::text[])
  AS c(node, started, succeeded, failed, skipped, message)
WHERE n.flow_run_id = %(run)s AND n.node = c.node AND n.status = 'running'
RETURNING {NODE_COLUMNS}"""


async def count_items(connection: Connection, run: UUID, counts: Sequence[ItemCount]) -> dict[str, NodeRow]:
    """Count items of running nodes; return the nodes as they are then."""
    rows = await connection.execute(_COUNT, {"run": run, **transpose(ItemCount, counts)})
    return {row.node: node_row(row) for row in rows}


_TALLY = """
UPDATE sched_flow_node n SET ups_succeeded = t.succeeded, ups_failed = t.failed, ups_skipped = t.skipped
FROM unnest(%(nodes)s::text[], %(succeeded)s::integer[], %(failed)s::integer[], %(skipped)s::integer[])
  AS t(node, succeeded, failed, skipped)
WHERE n.flow_run_id = %(run)s AND n.node = t.node AND n.status = 'waiting'"""


async def tally(connection: Connection, run: UUID, tallies: dict[str, UpstreamCounts]) -> None:
    """Write how the upstreams of waiting nodes have ended so far."""
    await connection.execute(
        _TALLY,
        {
            "run": run,
            "nodes": list(tallies),
            "succeeded": [one.succeeded for one in tallies.values()],
            "failed": [one.failed for one in tallies.values()],
            "skipped": [one.skipped for one in tallies.values()],
        },
    )


@dataclass(frozen=True, slots=True)
class NodeEnd:
    node: str
    status: FlowNodeStatus
    reason: str | None = None
    message: str | None = None
    # JSON
    output: str | None = None
    decided_by: str | None = None
    comment: str | None = None


_END_NODES = """
UPDATE sched_flow_node n
SET status = e.status, reason = coalesce(e.reason, n.reason), message = coalesce(e.message, n.message),
    output = e.output::jsonb, decided_by = coalesce(e.decided_by, n.decided_by),
    comment = coalesce(e.comment, n.comment), wake_at = NULL, event_name = NULL,
    finished_at = clock_timestamp()
FROM unnest(%(node)s::text[], %(status)s::text[], %(reason)s::text[], %(message)s::text[], %(output)s::text[],
            %(decided_by)s::text[], %(comment)s::text[])
  AS e(node, status, reason, message, output, decided_by, comment)
WHERE n.flow_run_id = %(run)s AND n.node = e.node AND n.status IN ('waiting', 'running')
  AND e.status IN ('succeeded', 'failed', 'cancelled', 'skipped')
RETURNING n.node, n.status"""

# Counts go with the ends, so that the last one is noticed.
_CLOSE = """
UPDATE sched_flow_run SET nodes_open = nodes_open - %(ended)s, nodes_failed = nodes_failed + %(failed)s
WHERE id = %(run)s AND status = 'running' RETURNING nodes_open"""


async def end_nodes(connection: Connection, run: UUID, ends: Sequence[NodeEnd]) -> dict[str, FlowNodeStatus]:
    """End nodes that have not ended; return those, and count them for the run."""
    rows = await connection.execute(_END_NODES, {"run": run, **transpose(NodeEnd, ends)})
    ended = {row.node: FlowNodeStatus(row.status) for row in rows}
    await _close(connection, run, list(ended.values()))
    return ended


_CANCEL_IDLE = """
UPDATE sched_flow_node
SET status = 'cancelled', reason = 'aborted', wake_at = NULL, event_name = NULL,
    finished_at = clock_timestamp()
WHERE flow_run_id = %(run)s
  AND (status = 'waiting' OR (status = 'running' AND started = succeeded + failed + skipped))
RETURNING node"""


async def cancel_idle_nodes(connection: Connection, run: UUID) -> int:
    """End nodes of an ending run that have nothing under way: those that wait for others, people or time."""
    rows = (await connection.execute(_CANCEL_IDLE, {"run": run})).all()
    await _close(connection, run, [FlowNodeStatus.CANCELLED] * len(rows))
    return len(rows)


async def _close(connection: Connection, run: UUID, ended: Sequence[FlowNodeStatus]) -> None:
    if ended:
        failed = sum(status is FlowNodeStatus.FAILED for status in ended)
        await connection.execute(_CLOSE, {"run": run, "ended": len(ended), "failed": failed})


_REUSE = """
UPDATE sched_flow_node n
SET status = 'succeeded', reason = 'reused', total = e.total, started = e.total, succeeded = e.succeeded,
    failed = e.failed, skipped = e.skipped, reused = e.succeeded, output = e.output,
    started_at = e.started_at, finished_at = clock_timestamp()
FROM sched_flow_node e
WHERE n.flow_run_id = %(run)s AND n.node = ANY(%(nodes)s::text[]) AND n.status = 'waiting'
  AND e.flow_run_id = %(earlier)s AND e.node = n.node AND e.status = 'succeeded'
RETURNING n.node"""


async def reuse_nodes(connection: Connection, run: UUID, earlier: UUID, nodes: Sequence[str]) -> set[str]:
    """Take over what nodes did in an earlier run; return those that had succeeded there."""
    rows = await connection.execute(_REUSE, {"run": run, "earlier": earlier, "nodes": list(nodes)})
    reused = set(rows.scalars())
    await _close(connection, run, [FlowNodeStatus.SUCCEEDED] * len(reused))
    return reused


_END_EARLY = """
UPDATE sched_flow_run SET ending = %(ending)s, reason = %(reason)s, message = %(message)s
WHERE id = %(run)s AND status = 'running' AND ending IS NULL RETURNING id"""


async def end_early(
    connection: Connection, run: UUID, ending: FlowRunStatus, reason: str, message: str | None = None
) -> bool:
    """Decide that nothing more starts and everything is ended; False: that was decided before."""
    done = await connection.execute(
        _END_EARLY, {"run": run, "ending": ending.value, "reason": reason, "message": message}
    )
    return done.scalar_one_or_none() is not None


_FINISH = """
UPDATE sched_flow_run
SET status = coalesce(ending, CASE WHEN nodes_failed > 0 THEN 'failed' ELSE 'succeeded' END),
    finished_at = clock_timestamp()
WHERE id = %(run)s AND status = 'running' AND nodes_open = 0
RETURNING status"""


async def finish_run(connection: Connection, run: UUID) -> FlowRunStatus | None:
    """End a run of which nothing is open."""
    status = (await connection.execute(_FINISH, {"run": run})).scalar_one_or_none()
    return None if status is None else FlowRunStatus(status)


_REQUEST = """
INSERT INTO sched_flow_advance (flow_run_id, namespace_id) VALUES (%(run)s, %(namespace_id)s)
ON CONFLICT (flow_run_id) DO UPDATE SET requested_at = clock_timestamp()"""


async def request_advance(connection: Connection, run: UUID, namespace_id: int) -> None:
    """Note that somebody has to go on with a run, however this server ends."""
    await connection.execute(_REQUEST, {"run": run, "namespace_id": namespace_id})


_REQUEST_FOR = """
INSERT INTO sched_flow_advance (flow_run_id, namespace_id)
SELECT task_id, namespace_id FROM sched_task_instance
WHERE id = ANY(%(ids)s::uuid[]) AND status = 'running' AND agent_id IS NULL AND cancel_requested
ON CONFLICT (flow_run_id) DO UPDATE SET requested_at = clock_timestamp()
RETURNING flow_run_id"""


async def request_cancels(connection: Connection, instances: Sequence[UUID]) -> list[UUID]:
    """Note that the runs behind instances that somebody wants ended are to be ended; return them."""
    rows = await connection.execute(_REQUEST_FOR, {"ids": list(instances)})
    return list(rows.scalars())


async def settle_advance(connection: Connection, run: UUID) -> None:
    """Note that nothing is left to do."""
    await connection.execute("DELETE FROM sched_flow_advance WHERE flow_run_id = %(run)s", {"run": run})
