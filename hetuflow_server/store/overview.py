"""Counts for people who look: what waits, what runs, what failed lately."""

from __future__ import annotations

from dataclasses import dataclass

from hetuflow_server.store.connection import Connection

_COUNTS = """
SELECT count(*) FILTER (WHERE i.status = 'held') AS held,
       count(*) FILTER (WHERE i.status = 'pending') AS pending,
       count(*) FILTER (WHERE i.status = 'reserved') AS reserved,
       count(*) FILTER (WHERE i.status = 'running') AS running,
       extract(epoch FROM clock_timestamp() - min(i.due_at) FILTER (
         WHERE i.status = 'pending' AND i.due_at <= clock_timestamp()))::float AS oldest_due_seconds
FROM sched_task_instance i JOIN sched_namespace n ON n.id = i.namespace_id
WHERE %(namespace)s::text IS NULL OR n.name = %(namespace)s"""

_FAILED = """
SELECT count(*) FROM sched_task t JOIN sched_namespace n ON n.id = t.namespace_id
WHERE t.status = 'failed' AND t.finished_at > clock_timestamp() - interval '1 hour'
  AND (%(namespace)s::text IS NULL OR n.name = %(namespace)s)"""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    held: int
    pending: int
    reserved: int
    running: int
    oldest_due_seconds: float | None


async def queue_counts(connection: Connection, namespace: str | None) -> QueueCounts:
    row = (await connection.exec_driver_sql(_COUNTS, {"namespace": namespace})).one()
    return QueueCounts(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name


async def failed_last_hour(connection: Connection, namespace: str | None) -> int:
    return int((await connection.exec_driver_sql(_FAILED, {"namespace": namespace})).scalar_one())
