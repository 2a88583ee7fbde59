"""Schedules: what people define, how far each has come, and taking back what has not happened yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from hetuflow_core.resources.schedules import Schedule
from hetuflow_server.jobs.leases_store import lease_of_namespace
from hetuflow_server.postgres.batches import Int, transpose
from hetuflow_server.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    id: UUID
    namespace_id: int
    job_id: UUID
    name: str
    spec: dict[str, Any]
    enabled: bool
    version: int
    # Only of those that fire at instants.
    cursor: datetime | None
    next_fire_at: datetime | None
    fired_count: int


@dataclass(frozen=True, slots=True)
class NewSchedule:
    id: UUID
    namespace_id: Int
    job_id: UUID
    name: str
    kind: str
    spec: str
    enabled: bool
    cursor: datetime | None
    next_fire_at: datetime | None


@dataclass(frozen=True, slots=True)
class ScheduleChange:
    """What a locked schedule becomes; it starts over at the cursor."""

    id: UUID
    kind: str
    spec: str
    enabled: bool
    cursor: datetime | None
    next_fire_at: datetime | None
    fired_count: int


class DueSchedule(NamedTuple):
    """A schedule with fires to generate, and of its job what they take over."""

    id: UUID
    namespace_id: int
    job_id: UUID
    name: str
    # JSON, without its name: many schedules say the same, and nobody reads it twice.
    spec: str
    version: int
    next_fire_at: datetime
    cursor: datetime
    decided_until: datetime | None
    fired_count: int
    job_version: int
    placement_id: int
    # JSON.
    params: str
    priority: int
    # None: that of the namespace.
    lease: str | None
    namespace_lease_ms: int
    is_flow: bool
    deadline: str | None
    # Whether its tasks count under a concurrency key.
    keyed: bool


@dataclass(frozen=True, slots=True)
class Advance:
    """From where to where a schedule goes; guarded by its version and where it was."""

    id: UUID
    version: Int
    cursor: datetime
    new_cursor: datetime
    decided_until: datetime | None
    next_fire_at: datetime | None
    fired: Int


# Before the next fire of any schedule, and its id.
BEGINNING = (datetime.min.replace(tzinfo=UTC), UUID(int=0))

_COLUMNS = """
s.id, s.namespace_id, s.job_id, s.name, s.spec, s.enabled, s.version, s.cursor, s.next_fire_at,
s.fired_count"""

# Named by the index of what comes next: what is not due is not touched, however many there are.
_DUE = f"""
SELECT s.id, s.namespace_id, s.job_id, s.name, (s.spec - 'name')::text AS spec, s.version,
       s.next_fire_at, s.cursor, s.decided_until, s.fired_count, j.version AS job_version, v.placement_id,
       v.spec->>'params' AS params, (v.spec->>'priority')::smallint AS priority, v.spec->>'lease' AS lease,
       {lease_of_namespace("s.namespace_id")} AS namespace_lease_ms, v.spec->'flow' IS NOT NULL AS is_flow,
       v.spec->>'deadline' AS deadline, v.spec->'concurrency'->>'key' IS NOT NULL AS keyed
FROM (
  SELECT * FROM sched_schedule
  WHERE enabled AND next_fire_at IS NOT NULL AND next_fire_at <= %(until)s
    AND (next_fire_at, id) > (%(after_at)s, %(after_id)s)
  ORDER BY next_fire_at, id LIMIT %(most)s) s
JOIN sched_job j ON j.id = s.job_id
JOIN sched_job_version v ON v.job_id = j.id AND v.version = j.version"""

_ANY_DUE = """
SELECT true FROM sched_schedule
WHERE enabled AND next_fire_at IS NOT NULL AND next_fire_at <= statement_timestamp() + %(ahead)s
ORDER BY next_fire_at LIMIT 1"""

# Whoever edits a schedule holds its row: it is skipped, and looked at again when they are done.
# What is locked carries its changes along: joined with them again, two lists are compared each with each.
# A locked row stays in its place, so the update need not look for it once more.
# None is the answer when all of them have moved: who leads must never have to wait for a large result.
_ADVANCE = """
WITH locked AS MATERIALIZED (
  SELECT s.ctid AS place, w.new_cursor, w.decided_until, w.next_fire_at, w.fired
  FROM unnest(%(id)s::uuid[], %(version)s::integer[], %(cursor)s::timestamptz[],
              %(new_cursor)s::timestamptz[], %(decided_until)s::timestamptz[],
              %(next_fire_at)s::timestamptz[], %(fired)s::integer[])
         AS w(id, version, cursor, new_cursor, decided_until, next_fire_at, fired)
  JOIN sched_schedule s ON s.id = w.id
  WHERE s.cursor = w.cursor AND s.version = w.version AND s.enabled
  ORDER BY s.id FOR UPDATE OF s SKIP LOCKED),
moved AS (
  UPDATE sched_schedule s
  SET cursor = l.new_cursor, decided_until = l.decided_until, next_fire_at = l.next_fire_at,
      fired_count = s.fired_count + l.fired
  FROM locked l
  WHERE s.ctid = l.place
  RETURNING s.id)
SELECT CASE WHEN count(*) < cardinality(%(id)s::uuid[]) THEN coalesce(array_agg(id), '{}') END FROM moved"""

_INSERT = """
INSERT INTO sched_schedule (id, namespace_id, job_id, name, kind, spec, enabled, cursor, next_fire_at)
SELECT id, namespace_id, job_id, name, kind, spec::jsonb, enabled, cursor, next_fire_at
FROM unnest(%(id)s::uuid[], %(namespace_id)s::integer[], %(job_id)s::uuid[], %(name)s::text[],
            %(kind)s::text[], %(spec)s::text[], %(enabled)s::boolean[], %(cursor)s::timestamptz[],
            %(next_fire_at)s::timestamptz[])
  AS n(id, namespace_id, job_id, name, kind, spec, enabled, cursor, next_fire_at)"""

_CHANGE = """
UPDATE sched_schedule s
SET kind = c.kind, spec = c.spec::jsonb, enabled = c.enabled, version = s.version + 1, cursor = c.cursor,
    next_fire_at = c.next_fire_at, decided_until = NULL, fired_count = c.fired_count,
    updated_at = clock_timestamp()
FROM unnest(%(id)s::uuid[], %(kind)s::text[], %(spec)s::text[], %(enabled)s::boolean[],
            %(cursor)s::timestamptz[], %(next_fire_at)s::timestamptz[], %(fired_count)s::bigint[])
  AS c(id, kind, spec, enabled, cursor, next_fire_at, fired_count)
WHERE s.id = c.id"""

_REMOVE = """
UPDATE sched_schedule
SET deleted_at = clock_timestamp(), updated_at = clock_timestamp(), enabled = false, version = version + 1,
    cursor = CASE WHEN kind IN ('cron', 'time') THEN %(now)s END, next_fire_at = NULL, decided_until = NULL
WHERE id = ANY(%(ids)s::uuid[])"""

# Fires that have not happened: in the future, never attempted, and in nobody's hands.
_UNTOUCHED = "status IN ('held', 'pending') AND seq = 1 AND fire_at > %(now)s"
_FUTURE = f"""
SELECT task_id FROM sched_task_instance
WHERE schedule_id = ANY(%(schedules)s::uuid[]) AND held_reason IN ('overlap', 'queue') AND {_UNTOUCHED}
UNION ALL
SELECT task_id FROM sched_task_instance
WHERE schedule_id = ANY(%(schedules)s::uuid[])
  AND (held_reason IS NULL OR held_reason NOT IN ('overlap', 'queue')) AND {_UNTOUCHED}"""
_LOCK_TASKS = """
SELECT id FROM sched_task WHERE id = ANY(%(tasks)s::uuid[]) AND status = 'pending' ORDER BY id FOR UPDATE"""
_WITHDRAW_INSTANCES = f"""
DELETE FROM sched_task_instance WHERE task_id = ANY(%(tasks)s::uuid[]) AND {_UNTOUCHED}
RETURNING task_id, schedule_id"""


async def any_due(connection: Connection, ahead: timedelta) -> bool:
    """Tell whether there is a schedule that has fires to generate within `ahead`."""
    return bool(await connection.execute(_ANY_DUE, {"ahead": ahead}))


async def due(
    connection: Connection, until: datetime, most: int, after: tuple[datetime, UUID] = BEGINNING
) -> list[DueSchedule]:
    """Return the soonest schedules behind `after` that have fires to generate up to `until`."""
    parameters = {"until": until, "most": most, "after_at": after[0], "after_id": after[1]}
    rows = await connection.execute(_DUE, parameters, binary=True)
    return [DueSchedule._make(row) for row in rows]


async def advance(connection: Connection, advances: Sequence[Advance]) -> set[UUID]:
    """Move cursors by compare-and-set; return the schedules that were as they were thought to be."""
    answer = await connection.execute(_ADVANCE, transpose(Advance, advances))
    moved: list[UUID] | None = answer.scalar_one()
    return {advance.id for advance in advances} if moved is None else set(moved)


async def uncount(connection: Connection, repeated: Mapping[UUID, int]) -> None:
    """Take back counts of fires that turned out to have a task already."""
    await connection.execute(
        "UPDATE sched_schedule s SET fired_count = greatest(0, s.fired_count - c.number) "
        "FROM unnest(%(ids)s::uuid[], %(numbers)s::integer[]) AS c(id, number) WHERE s.id = c.id",
        {"ids": list(repeated), "numbers": list(repeated.values())},
    )


async def lock_of_job(connection: Connection, job_id: UUID) -> list[ScheduleRow]:
    """Return and lock a job's schedules, in the order of their ids; the caller holds the job."""
    return (await lock_of_jobs(connection, [job_id])).get(job_id, [])


async def lock_of_jobs(connection: Connection, jobs: Sequence[UUID]) -> dict[UUID, list[ScheduleRow]]:
    """Return and lock the schedules of jobs, in the order of their ids; the caller holds the jobs."""
    rows = await connection.execute(
        f"SELECT {_COLUMNS} FROM sched_schedule s WHERE s.job_id = ANY(%(jobs)s::uuid[]) "
        "AND s.deleted_at IS NULL ORDER BY s.id FOR UPDATE",
        {"jobs": list(jobs)},
    )
    found: dict[UUID, list[ScheduleRow]] = {}
    for row in rows:
        found.setdefault(row.job_id, []).append(ScheduleRow(**row.as_dict()))
    return found


async def by_id(connection: Connection, id_: UUID) -> ScheduleRow | None:
    row = (
        await connection.execute(
            f"SELECT {_COLUMNS} FROM sched_schedule s WHERE s.id = %(id)s AND s.deleted_at IS NULL",
            {"id": id_},
        )
    ).one_or_none()
    return ScheduleRow(**row.as_dict()) if row else None


async def insert(connection: Connection, schedules: Sequence[NewSchedule]) -> None:
    if schedules:
        await connection.execute(_INSERT, transpose(NewSchedule, schedules))


async def change(connection: Connection, changes: Sequence[ScheduleChange]) -> None:
    """Write locked schedules anew: each has a version more, and starts over at its cursor."""
    if changes:
        await connection.execute(_CHANGE, transpose(ScheduleChange, changes))


async def remove(connection: Connection, ids: Sequence[UUID], now: datetime) -> None:
    if ids:
        await connection.execute(_REMOVE, {"ids": list(ids), "now": now})


async def withdraw(connection: Connection, schedules: Sequence[UUID], now: datetime) -> dict[UUID, int]:
    """Delete tasks of locked schedules that have not happened yet; return how many of each schedule."""
    withdrawn: dict[UUID, int] = {}
    if not schedules:
        return withdrawn
    future = await connection.execute(_FUTURE, {"schedules": list(schedules), "now": now})
    tasks = sorted(future.scalars())
    if not tasks:
        return withdrawn
    locked = await connection.execute(_LOCK_TASKS, {"tasks": tasks})
    gone = (
        await connection.execute(_WITHDRAW_INSTANCES, {"tasks": list(locked.scalars()), "now": now})
    ).all()
    await connection.execute(
        "DELETE FROM sched_task WHERE id = ANY(%(tasks)s::uuid[])", {"tasks": [row.task_id for row in gone]}
    )
    for row in gone:
        withdrawn[row.schedule_id] = withdrawn.get(row.schedule_id, 0) + 1
    return withdrawn


def to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_SHOWN = """
SELECT s.id, n.name AS namespace, j.name AS job, s.job_id, s.name, s.kind, s.enabled,
       j.enabled AS job_enabled, s.version, s.next_fire_at, s.fired_count, s.created_at, s.updated_at, s.spec
FROM sched_schedule s JOIN sched_namespace n ON n.id = s.namespace_id JOIN sched_job j ON j.id = s.job_id
WHERE s.deleted_at IS NULL"""

_FILTER = """
  AND (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s))
  AND (%(job)s::text IS NULL OR j.name = %(job)s)
  AND (%(name)s::text IS NULL OR s.name = %(name)s)
  AND (%(kind)s::text IS NULL OR s.kind = %(kind)s)
  AND (%(enabled)s::boolean IS NULL OR (s.enabled AND j.enabled) = %(enabled)s)"""

_LIST = f"""
{_SHOWN} {_FILTER}
  AND (%(after)s::text[] IS NULL
       OR (n.name, j.name, s.name) > (%(after)s[1], %(after)s[2], %(after)s[3]))
ORDER BY n.name, j.name, s.name LIMIT %(limit)s"""

_COUNT = f"""
SELECT count(*) FROM (
  SELECT FROM sched_schedule s JOIN sched_namespace n ON n.id = s.namespace_id
  JOIN sched_job j ON j.id = s.job_id
  WHERE s.deleted_at IS NULL {_FILTER} LIMIT %(cap)s) counted"""


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    namespace: str | None = None
    job: str | None = None
    name: str | None = None
    kind: str | None = None
    # Both it and its job.
    enabled: bool | None = None
    # Those that may be looked in; None: all.
    namespaces: Sequence[str] | None = None


async def shown(connection: Connection, id_: UUID) -> Schedule | None:
    row = (await connection.execute(f"{_SHOWN} AND s.id = %(id)s", {"id": id_})).one_or_none()
    return Schedule(**row.as_dict()) if row else None


async def listed(
    connection: Connection, wanted: ScheduleFilter, *, after: tuple[str, str, str] | None, limit: int
) -> list[Schedule]:
    """Return schedules by namespace, job and name, from behind `after`."""
    rows = await connection.execute(
        _LIST, {**asdict(wanted), "after": list(after) if after else None, "limit": limit}
    )
    return [Schedule(**row.as_dict()) for row in rows]


async def count(connection: Connection, wanted: ScheduleFilter, cap: int) -> int:
    row = await connection.execute(_COUNT, {**asdict(wanted), "cap": cap})
    return int(row.scalar_one())
