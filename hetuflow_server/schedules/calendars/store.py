"""Calendars: named sets of days, and the schedules that go by them.

Whoever locks calendars does so before jobs and schedules, and by name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.resources.schedules import Calendar
from hetuflow_server.postgres.database import Connection
from hetuflow_server.postgres.sql_fragments import NAMES_CALENDARS


@dataclass(frozen=True, slots=True)
class CalendarRow:
    namespace_id: int
    name: str
    version: int
    spec: dict[str, Any]

    @property
    def parts(self) -> list[str]:
        """Names of the calendars it is put together from."""
        return list(self.spec.get("calendars") or ())


@dataclass(frozen=True, slots=True)
class CalendarUser:
    """A schedule that names a calendar."""

    schedule_id: UUID
    job_id: UUID
    job: str
    name: str


_LIST = """
SELECT n.name AS namespace, c.name, c.version, c.labels, c.created_at, c.updated_at, c.spec
FROM sched_calendar c JOIN sched_namespace n ON n.id = c.namespace_id
WHERE (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s))
  AND (%(name)s::text IS NULL OR c.name = %(name)s)
  AND (%(after)s::text IS NULL OR (n.name, c.name) > (%(after_namespace)s::text, %(after)s))
ORDER BY n.name, c.name LIMIT %(limit)s"""

_COUNT = """
SELECT count(*) FROM (
  SELECT FROM sched_calendar c JOIN sched_namespace n ON n.id = c.namespace_id
  WHERE (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s)) LIMIT %(cap)s) counted"""

_ALL = """
SELECT namespace_id, name, version, spec FROM sched_calendar
WHERE namespace_id = ANY(%(namespace_ids)s::integer[]) ORDER BY namespace_id, name"""

# Against being deleted, for whoever holds a job already.
_KEEP = """
SELECT name FROM sched_calendar
WHERE namespace_id = %(namespace_id)s AND name = ANY(%(names)s::text[]) ORDER BY name FOR KEY SHARE"""

# Against being deleted or edited, for whoever holds no job yet.
_SHARE = """
SELECT name FROM sched_calendar
WHERE namespace_id = %(namespace_id)s AND name = ANY(%(names)s::text[]) ORDER BY name FOR SHARE"""

_LOCK = """
SELECT namespace_id, name, version, spec FROM sched_calendar
WHERE namespace_id = %(namespace_id)s ORDER BY name FOR NO KEY UPDATE"""

_INSERT = """
INSERT INTO sched_calendar (namespace_id, name, labels, spec)
VALUES (%(namespace_id)s, %(name)s, %(labels)s::jsonb, %(spec)s::jsonb)
ON CONFLICT (namespace_id, name) DO NOTHING RETURNING name"""

_CHANGE = """
UPDATE sched_calendar
SET version = version + 1, labels = %(labels)s::jsonb, spec = %(spec)s::jsonb, updated_at = clock_timestamp()
WHERE namespace_id = %(namespace_id)s AND name = %(name)s AND version = %(version)s"""

_USERS = f"""
SELECT s.id AS schedule_id, s.job_id, j.name AS job, s.name
FROM sched_schedule s JOIN sched_job j ON j.id = s.job_id
WHERE s.namespace_id = %(namespace_id)s AND s.deleted_at IS NULL AND s.{NAMES_CALENDARS}
  AND (s.spec #> '{{calendar,exclude}}' ?| %(names)s::text[]
       OR s.spec #> '{{calendar,include}}' ?| %(names)s::text[])
ORDER BY s.job_id, s.id LIMIT %(limit)s"""


async def list_calendars(
    connection: Connection,
    *,
    namespaces: Sequence[str] | None = None,
    name: str | None = None,
    after: tuple[str, str] | None = None,
    limit: int,
) -> list[Calendar]:
    """Return calendars by namespace and name, from behind `after` (namespace, name)."""
    rows = await connection.execute(
        _LIST,
        {
            "namespaces": namespaces,
            "name": name,
            "after_namespace": after[0] if after else None,
            "after": after[1] if after else None,
            "limit": limit,
        },
    )
    return [
        Calendar(row.namespace, row.name, row.version, row.labels, row.created_at, row.updated_at, row.spec)
        for row in rows
    ]


async def count_calendars(connection: Connection, namespaces: Sequence[str] | None, cap: int) -> int:
    row = await connection.execute(_COUNT, {"namespaces": namespaces, "cap": cap})
    return int(row.scalar_one())


async def all_of(connection: Connection, namespace_ids: Collection[int]) -> list[CalendarRow]:
    """Return all calendars of these namespaces: those that are named may be put together from others."""
    if not namespace_ids:
        return []
    rows = await connection.execute(_ALL, {"namespace_ids": sorted(namespace_ids)})
    return [CalendarRow(row.namespace_id, row.name, row.version, row.spec) for row in rows]


async def share(connection: Connection, namespace_id: int, names: Collection[str]) -> set[str]:
    """Return those of these calendars there are, and keep them as they are until the commit."""
    rows = await connection.execute(_SHARE, {"namespace_id": namespace_id, "names": sorted(names)})
    return set(rows.scalars())


async def keep(connection: Connection, namespace_id: int, names: Collection[str]) -> set[str]:
    """Return those of these calendars there are, and keep them from being deleted until the commit."""
    rows = await connection.execute(_KEEP, {"namespace_id": namespace_id, "names": sorted(names)})
    return set(rows.scalars())


async def lock_for_deletion(connection: Connection, namespace_id: int, name: str) -> bool:
    """Lock a calendar against schedules that would begin to use it; return whether there is one."""
    row = await connection.execute(
        "SELECT name FROM sched_calendar WHERE namespace_id = %(namespace_id)s AND name = %(name)s "
        "FOR UPDATE",
        {"namespace_id": namespace_id, "name": name},
    )
    return row.scalar_one_or_none() is not None


async def lock(connection: Connection, namespace_id: int) -> dict[str, CalendarRow]:
    """Lock the calendars of a namespace: an edit of one depends on what the others are put together from."""
    rows = await connection.execute(_LOCK, {"namespace_id": namespace_id})
    return {row.name: CalendarRow(row.namespace_id, row.name, row.version, row.spec) for row in rows}


async def insert(
    connection: Connection, namespace_id: int, name: str, labels: dict[str, str], spec: dict[str, Any]
) -> bool:
    """Return whether it is new."""
    row = await connection.execute(
        _INSERT, {"namespace_id": namespace_id, "name": name, "labels": _json(labels), "spec": _json(spec)}
    )
    return row.scalar_one_or_none() is not None


async def change(
    connection: Connection, known: CalendarRow, labels: dict[str, str], spec: dict[str, Any]
) -> None:
    """Write a locked calendar anew."""
    await connection.execute(
        _CHANGE,
        {
            "namespace_id": known.namespace_id,
            "name": known.name,
            "version": known.version,
            "labels": _json(labels),
            "spec": _json(spec),
        },
    )


async def delete(connection: Connection, namespace_id: int, name: str) -> None:
    await connection.execute(
        "DELETE FROM sched_calendar WHERE namespace_id = %(namespace_id)s AND name = %(name)s",
        {"namespace_id": namespace_id, "name": name},
    )


async def users(
    connection: Connection, namespace_id: int, names: Sequence[str], limit: int | None = None
) -> list[CalendarUser]:
    """Return the schedules that name one of these calendars."""
    rows = await connection.execute(
        _USERS, {"namespace_id": namespace_id, "names": list(names), "limit": limit}
    )
    return [CalendarUser(row.schedule_id, row.job_id, row.job, row.name) for row in rows]


# In the order in which an apply takes them.
_LOCK_JOBS = """
SELECT j.id FROM sched_job j JOIN sched_namespace n ON n.id = j.namespace_id
WHERE j.deleted_at IS NULL
  AND (j.id = ANY(%(ids)s::uuid[])
       OR (n.name, j.name) IN (SELECT * FROM unnest(%(namespaces)s::text[], %(names)s::text[])))
ORDER BY n.name COLLATE "C", j.name COLLATE "C" FOR UPDATE OF j"""

_LOCK_SCHEDULES = """
SELECT id FROM sched_schedule WHERE job_id = ANY(%(jobs)s::uuid[]) AND deleted_at IS NULL
ORDER BY id FOR UPDATE"""


async def lock_users(
    connection: Connection, jobs: Collection[UUID], also: Collection[tuple[str, str]]
) -> list[UUID]:
    """Lock these jobs with their schedules, and others the caller wants too, as (namespace, name).

    Returns all jobs that are there.
    """
    rows = await connection.execute(
        _LOCK_JOBS,
        {
            "ids": list(jobs),
            "namespaces": [namespace for namespace, _ in also],
            "names": [name for _, name in also],
        },
    )
    locked = [row.id for row in rows]
    await connection.execute(_LOCK_SCHEDULES, {"jobs": [id_ for id_ in locked if id_ in jobs]})
    return locked


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
