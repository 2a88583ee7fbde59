"""Backfills: fires of a range in the past, made up for a few at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core.resources.schedules import Backfill
from hetuflow_server.postgres.batches import Int, transpose
from hetuflow_server.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class NewBackfill:
    id: UUID
    namespace_id: int
    job_id: UUID
    job_version: int
    schedule_id: UUID
    from_at: datetime
    to_at: datetime
    fires: list[datetime]
    params: str
    priority: int
    max_parallel: int
    created_at: datetime
    created_by: str | None


@dataclass(frozen=True, slots=True)
class EndedTasks:
    """How many tasks of a backfill have just ended."""

    id: UUID
    done: Int
    failed: Int


@dataclass(frozen=True, slots=True)
class NextFires:
    """Fires of a backfill whose turn it is; they count as created."""

    id: UUID
    namespace_id: int
    job_id: UUID
    job_version: int
    schedule_id: UUID
    params: dict[str, Any]
    priority: int
    created_at: datetime
    created_by: str | None
    fires: list[datetime]


_INSERT = """
INSERT INTO sched_backfill (id, namespace_id, job_id, job_version, schedule_id, from_at, to_at, fires, params,
                            priority, max_parallel, created_at, created_by)
VALUES (%(id)s, %(namespace_id)s, %(job_id)s, %(job_version)s, %(schedule_id)s, %(from_at)s, %(to_at)s,
        %(fires)s::timestamptz[], %(params)s::jsonb, %(priority)s, %(max_parallel)s, %(created_at)s,
        %(created_by)s)"""

_LOCKED = "locked AS MATERIALIZED (SELECT id, created FROM sched_backfill WHERE {} ORDER BY id FOR UPDATE)"

_COUNT_ENDED = f"""
WITH ended AS (
  SELECT * FROM unnest(%(id)s::uuid[], %(done)s::integer[], %(failed)s::integer[]) AS e(id, done, failed)),
{_LOCKED.format("id = ANY(%(id)s::uuid[])")}
UPDATE sched_backfill b SET done = b.done + e.done, failed = b.failed + e.failed
FROM ended e JOIN locked USING (id) WHERE b.id = e.id"""

# What has ended makes room; the array is read only where there is room.
_TAKE = f"""
WITH {_LOCKED.format("id = ANY(%(ids)s::uuid[]) AND cancelled_at IS NULL AND finished_at IS NULL")}
UPDATE sched_backfill b SET created = least(cardinality(b.fires), b.done + b.max_parallel)
FROM locked
WHERE b.id = locked.id AND b.created < least(cardinality(b.fires), b.done + b.max_parallel)
RETURNING b.id, b.namespace_id, b.job_id, b.job_version, b.schedule_id, b.params, b.priority, b.created_at,
          b.created_by, b.fires[locked.created + 1 : b.created] AS fires"""

_CLOSE = """
UPDATE sched_backfill SET finished_at = clock_timestamp()
WHERE id = ANY(%(ids)s::uuid[]) AND finished_at IS NULL AND done = created
  AND (cancelled_at IS NOT NULL OR created = cardinality(fires))"""

# Those that are not closed, or have room nobody has used: a transaction was cut off, or is about to do it.
_NEGLECTED = """
SELECT id FROM sched_backfill
WHERE namespace_id = %(namespace_id)s AND finished_at IS NULL
  AND (done = created OR (cancelled_at IS NULL AND created < least(cardinality(fires), done + max_parallel)))
ORDER BY id LIMIT %(most)s"""

_SHOWN = """
SELECT b.id, n.name AS namespace, j.name AS job, b.job_id, b.job_version, s.name AS schedule, b.schedule_id,
       b.from_at AS "from", b.to_at AS "to", b.max_parallel, b.params, cardinality(b.fires) AS total,
       b.created, b.created - b.done AS running, b.done, b.failed, b.created_by, b.created_at, b.cancelled_at,
       b.finished_at,
       CASE WHEN b.cancelled_at IS NOT NULL THEN CASE WHEN b.finished_at IS NULL THEN 'cancelling'
                                                      ELSE 'cancelled' END
            WHEN b.finished_at IS NULL THEN 'running'
            WHEN b.failed > 0 THEN 'failed' ELSE 'succeeded' END AS state
FROM sched_backfill b JOIN sched_namespace n ON n.id = b.namespace_id JOIN sched_job j ON j.id = b.job_id
JOIN sched_schedule s ON s.id = b.schedule_id"""

_LIST = f"""
{_SHOWN}
WHERE (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s))
  AND (%(schedule_id)s::uuid IS NULL OR b.schedule_id = %(schedule_id)s)
  AND (%(before)s::uuid IS NULL OR b.id < %(before)s)
ORDER BY b.id DESC LIMIT %(limit)s"""

_COUNT = """
SELECT count(*) FROM (
  SELECT FROM sched_backfill b JOIN sched_namespace n ON n.id = b.namespace_id
  WHERE (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s))
    AND (%(schedule_id)s::uuid IS NULL OR b.schedule_id = %(schedule_id)s)
  LIMIT %(cap)s) counted"""

_LIVE_TASKS = """
SELECT t.id FROM sched_task t
WHERE t.schedule_id = (SELECT schedule_id FROM sched_backfill WHERE id = %(id)s)
  AND t.id >= %(first)s AND t.backfill_id = %(id)s AND t.finished_at IS NULL
ORDER BY t.id LIMIT %(most)s"""


async def insert(connection: Connection, backfill: NewBackfill) -> None:
    await connection.execute(_INSERT, asdict(backfill))


async def count_ended(connection: Connection, ended: Sequence[EndedTasks]) -> None:
    await connection.execute(_COUNT_ENDED, transpose(EndedTasks, ended))


async def take(connection: Connection, ids: Sequence[UUID]) -> list[NextFires]:
    """Count what there is room for as created; the caller makes the tasks in the same transaction."""
    rows = await connection.execute(_TAKE, {"ids": sorted(set(ids))})
    return [NextFires(**row.as_dict()) for row in rows]


async def close(connection: Connection, ids: Sequence[UUID]) -> int:
    """Note the end of those of which nothing is left to do."""
    return (await connection.execute(_CLOSE, {"ids": sorted(set(ids))})).rowcount


async def neglected(connection: Connection, namespace_id: int, most: int) -> list[UUID]:
    rows = await connection.execute(_NEGLECTED, {"namespace_id": namespace_id, "most": most})
    return list(rows.scalars())


async def cancel(connection: Connection, id_: UUID) -> bool:
    """Let no more tasks be made; return False when it has ended already."""
    changed = await connection.execute(
        "UPDATE sched_backfill SET cancelled_at = coalesce(cancelled_at, clock_timestamp()) "
        "WHERE id = %(id)s AND finished_at IS NULL",
        {"id": id_},
    )
    return changed.rowcount > 0


async def live_tasks(connection: Connection, id_: UUID, first: UUID, most: int) -> list[UUID]:
    """Return its unfinished tasks; `first` is the least id they can have."""
    rows = await connection.execute(_LIVE_TASKS, {"id": id_, "first": first, "most": most})
    return list(rows.scalars())


async def by_id(connection: Connection, id_: UUID) -> Backfill | None:
    row = (await connection.execute(f"{_SHOWN} WHERE b.id = %(id)s", {"id": id_})).one_or_none()
    return _shown(row) if row else None


async def listed(
    connection: Connection,
    *,
    namespaces: Sequence[str] | None,
    schedule_id: UUID | None,
    before: UUID | None,
    limit: int,
) -> list[Backfill]:
    """Return backfills, newest first."""
    rows = await connection.execute(
        _LIST, {"namespaces": namespaces, "schedule_id": schedule_id, "before": before, "limit": limit}
    )
    return [_shown(row) for row in rows]


async def count(
    connection: Connection, *, namespaces: Sequence[str] | None, schedule_id: UUID | None, cap: int
) -> int:
    row = await connection.execute(_COUNT, {"namespaces": namespaces, "schedule_id": schedule_id, "cap": cap})
    return int(row.scalar_one())


def _shown(row: Any) -> Backfill:
    fields = row.as_dict()
    # Python keeps `from` for itself.
    return Backfill(from_=fields.pop("from"), **fields)
