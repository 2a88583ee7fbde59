"""Schedules as previews need them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_server.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class PreviewedSchedule:
    id: UUID
    name: str
    namespace: str
    namespace_id: int
    spec: dict[str, Any]
    enabled: bool
    job_enabled: bool
    # Fires up to here are generated and part of the count; those after now are still to come.
    # None for what does not fire at instants.
    cursor: datetime | None
    fired_count: int


_SCHEDULES = """
SELECT s.id, s.name, n.name AS namespace, s.namespace_id, s.spec, s.enabled, j.enabled AS job_enabled,
       s.cursor, s.fired_count
FROM sched_schedule s JOIN sched_job j ON j.id = s.job_id JOIN sched_namespace n ON n.id = j.namespace_id
WHERE j.deleted_at IS NULL AND s.deleted_at IS NULL"""

_OF_JOB = f"{_SCHEDULES} AND s.kind IN ('cron', 'time') AND s.job_id = %(id)s ORDER BY s.name"
_ONE = f"{_SCHEDULES} AND s.id = %(id)s"


async def of_job(connection: Connection, job_id: UUID) -> list[PreviewedSchedule]:
    rows = await connection.execute(_OF_JOB, {"id": job_id})
    return [_schedule(row) for row in rows]


async def one(connection: Connection, id_: UUID) -> PreviewedSchedule | None:
    row = (await connection.execute(_ONE, {"id": id_})).one_or_none()
    return _schedule(row) if row is not None else None


def _schedule(row: Any) -> PreviewedSchedule:
    return PreviewedSchedule(
        id=row.id,
        name=row.name,
        namespace=row.namespace,
        namespace_id=row.namespace_id,
        spec=row.spec,
        enabled=row.enabled,
        job_enabled=row.job_enabled,
        cursor=row.cursor,
        fired_count=row.fired_count,
    )
