"""Runs of flows as people see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from hetuflow_core.ids import range_of
from hetuflow_core.resources.flows import FlowRun
from hetuflow_server.identity import access_store
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.keyset import EVERYTHING, KeysetIndex, KeysetQuery, few

_COLUMNS = """
r.id, n.name AS namespace, j.name AS job, r.job_id, r.job_version, r.status, r.ending, r.reason, r.message,
r.params, r.priority, r.parent_id, r.retry_of, r.nodes_open, r.nodes_failed, r.fire_at, r.started_at,
r.deadline_at, r.finished_at"""

_FROM = """
FROM sched_flow_run r JOIN sched_namespace n ON n.id = r.namespace_id JOIN sched_job j ON j.id = r.job_id"""

_SHOWN = f"""
SELECT {_COLUMNS} {_FROM} WHERE r.id = ANY(%(ids)s::uuid[]) AND r.id BETWEEN %(first)s AND %(last)s
ORDER BY r.id DESC"""

_JOBS = """
SELECT j.id FROM sched_job j JOIN sched_namespace n ON n.id = j.namespace_id
WHERE j.name = %(job)s AND (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s)) ORDER BY j.id"""


@dataclass(frozen=True, slots=True)
class RunFilter:
    namespace: str | None = None
    job: str | None = None
    status: str | None = None
    before: UUID | None = None
    # Where whoever asks may look; None: everywhere.
    namespaces: Sequence[str] | None = None


async def run_by_id(connection: Connection, id_: UUID) -> FlowRun | None:
    row = (
        await connection.execute(f"SELECT {_COLUMNS} {_FROM} WHERE r.id = %(id)s", {"id": id_})
    ).one_or_none()
    return None if row is None else FlowRun(**row.as_dict())


async def walk_to(connection: Connection, wanted: RunFilter) -> KeysetQuery:
    """Return the shortest way along an index to the runs that are wanted."""
    namespaces = None if wanted.namespaces is None else list(wanted.namespaces)
    axis, scopes, conditions = None, list[Any](), []
    if wanted.job is not None:
        named = {"job": wanted.job, "namespaces": namespaces}
        scopes = list((await connection.execute(_JOBS, named)).scalars())
        axis = KeysetIndex("job_id", "uuid")
    elif namespaces is not None:
        scopes = await access_store.namespace_ids_within(connection, namespaces)
        axis = KeysetIndex("namespace_id", "integer")
    if axis is not None and not few(scopes):
        conditions.append(f"r.{axis.column} = ANY(%(scopes)s::{axis.kind}[])")
        axis = None
    if wanted.status is not None:
        conditions.append("r.status = %(status)s")
    parameters = {"status": wanted.status, "scopes": scopes}
    return KeysetQuery("sched_flow_run", " AND ".join(conditions) or EVERYTHING, parameters, axis, scopes)


async def runs(connection: Connection, wanted: Sequence[UUID]) -> list[FlowRun]:
    """Return these runs, newest first; those that are gone are left out."""
    if not wanted:
        return []
    first, last = range_of(wanted)
    rows = await connection.execute(_SHOWN, {"ids": list(wanted), "first": first, "last": last})
    return [FlowRun(**row.as_dict()) for row in rows]


_NODES = """
SELECT node, status, reason, message, total, started, succeeded, failed, skipped, output, wake_at, decided_by,
       comment, started_at, finished_at
FROM sched_flow_node WHERE flow_run_id = %(run)s"""


async def node_states(connection: Connection, run: UUID) -> dict[str, dict[str, Any]]:
    """Return {node: how it stands} for all nodes of a run."""
    rows = await connection.execute(_NODES, {"run": run})
    found = [row.as_dict() for row in rows]
    return {fields.pop("node"): fields for fields in found}


# The tasks of a run's nodes have the time of the run: their ids lie in one millisecond.
_OF_RUN = """
FROM sched_task WHERE id BETWEEN %(first)s AND %(last)s AND flow_run_id = %(run)s
  AND (%(node)s::text IS NULL OR flow_node = %(node)s)"""


async def task_ids(
    connection: Connection, run: UUID, node: str | None, first: UUID, last: UUID, limit: int
) -> list[UUID]:
    rows = await connection.execute(
        f"SELECT id {_OF_RUN} ORDER BY id LIMIT %(limit)s",
        {"run": run, "node": node, "first": first, "last": last, "limit": limit},
    )
    return list(rows.scalars())


async def count_tasks(connection: Connection, run: UUID, node: str | None, first: UUID, last: UUID) -> int:
    row = await connection.execute(
        f"SELECT count(*) {_OF_RUN}", {"run": run, "node": node, "first": first, "last": last}
    )
    return int(row.scalar_one())


_LIVE_OF_NODE = """
SELECT i.id FROM sched_task_instance i JOIN sched_task t ON t.id = i.task_id
WHERE i.flow_run_id = %(run)s AND t.flow_node = %(node)s ORDER BY i.id LIMIT %(most)s"""


async def live_of_node(connection: Connection, run: UUID, node: str, most: int) -> list[UUID]:
    """Return instances of a node that are in the queue."""
    rows = await connection.execute(_LIVE_OF_NODE, {"run": run, "node": node, "most": most})
    return list(rows.scalars())
