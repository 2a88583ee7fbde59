"""Counts for people who look: what waits, what runs, what failed lately."""

from __future__ import annotations

from collections.abc import Sequence
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
WHERE %(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s)"""

_FAILED = """
SELECT count(*) FROM sched_task t JOIN sched_namespace n ON n.id = t.namespace_id
WHERE t.status = 'failed' AND t.finished_at > clock_timestamp() - interval '1 hour'
  AND (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s))"""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    held: int
    pending: int
    reserved: int
    running: int
    oldest_due_seconds: float | None


async def queue_counts(connection: Connection, namespaces: Sequence[str] | None) -> QueueCounts:
    row = (await connection.exec_driver_sql(_COUNTS, {"namespaces": namespaces})).one()
    return QueueCounts(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name


async def failed_last_hour(connection: Connection, namespaces: Sequence[str] | None) -> int:
    return int((await connection.exec_driver_sql(_FAILED, {"namespaces": namespaces})).scalar_one())
