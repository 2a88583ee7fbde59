"""Matching of events: what is to be done, who may want it, what they remember, and what became of it.

Whoever changes the windows of a schedule holds the schedule's row; they have no locks of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.events.windows import Collected, EventOutcome, Window
from hetuflow_server.jobs.leases_store import lease_of_namespace
from hetuflow_server.postgres.batches import Int, SmallInt, transpose
from hetuflow_server.postgres.connection import Connection


@dataclass(frozen=True, slots=True)
class TakenEvent:
    id: UUID
    namespace_id: int
    name: str
    payload: Any
    key: str | None
    depth: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class WaitingSchedule:
    """A schedule that waits for events, and of its job what its tasks take over."""

    id: UUID
    namespace_id: int
    job_id: UUID
    name: str
    # JSON, without its name.
    spec: str
    version: int
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
class NewEffect:
    event_id: UUID
    schedule_id: UUID
    outcome: EventOutcome
    depth: SmallInt
    task_id: UUID | None = None
    window_id: UUID | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class DueWindow:
    schedule_id: UUID
    key: str
    window: Window


@dataclass(frozen=True, slots=True)
class _WindowRow:
    schedule_id: UUID
    key: str
    namespace_id: Int
    id: UUID
    opened_at: datetime
    deadline_at: datetime
    count: Int
    last_event_id: UUID | None
    collected: str


# The oldest first, without those that somebody else is matching.
_TAKE = """
WITH todo AS MATERIALIZED (
  SELECT event_id FROM sched_event_todo ORDER BY event_id LIMIT %(most)s FOR UPDATE SKIP LOCKED)
SELECT t.event_id AS id, e.namespace_id, e.name, e.payload, e.key, e.depth, e.created_at
FROM todo t LEFT JOIN sched_event e ON e.id = t.event_id ORDER BY t.event_id"""

_ANY = "SELECT true FROM sched_event_todo ORDER BY event_id LIMIT 1"

_SCHEDULE = f"""
SELECT s.id, s.namespace_id, s.job_id, s.name, (s.spec - 'name')::text AS spec, s.version,
       j.version AS job_version, v.placement_id, v.spec->>'params' AS params,
       (v.spec->>'priority')::smallint AS priority, v.spec->>'lease' AS lease,
       {lease_of_namespace("s.namespace_id")} AS namespace_lease_ms, v.spec->'flow' IS NOT NULL AS is_flow,
       v.spec->>'deadline' AS deadline, v.spec->'concurrency'->>'key' IS NOT NULL AS keyed
FROM sched_schedule s JOIN sched_job j ON j.id = s.job_id AND j.enabled AND j.deleted_at IS NULL
JOIN sched_job_version v ON v.job_id = j.id AND v.version = j.version
WHERE s.enabled AND s.deleted_at IS NULL"""

# By the index of names: what no event of the batch is called is not looked at.
_WAITING = f"""
{_SCHEDULE} AND s.id IN (
  SELECT t.schedule_id
  FROM unnest(%(namespaces)s::integer[], %(patterns)s::text[]) AS w(namespace_id, pattern)
  JOIN sched_event_trigger t USING (namespace_id, pattern))"""

_BY_ID = f"{_SCHEDULE} AND s.id = ANY(%(ids)s::uuid[])"

_LOCK = """
SELECT id, version FROM sched_schedule WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR NO KEY UPDATE"""

_WINDOW_COLUMNS = (
    "w.schedule_id, w.key, w.id, w.opened_at, w.deadline_at, w.count, w.last_event_id, w.collected"
)

_WINDOWS = f"""
SELECT {_WINDOW_COLUMNS} FROM unnest(%(schedules)s::uuid[], %(keys)s::text[]) AS k(schedule_id, key)
JOIN sched_event_window w USING (schedule_id, key)"""

_KEEP_WINDOWS = """
INSERT INTO sched_event_window (schedule_id, key, namespace_id, id, opened_at, deadline_at, count,
                                last_event_id, collected)
SELECT schedule_id, key, namespace_id, id, opened_at, deadline_at, count, last_event_id, collected::jsonb
FROM unnest(%(schedule_id)s::uuid[], %(key)s::text[], %(namespace_id)s::integer[], %(id)s::uuid[],
            %(opened_at)s::timestamptz[], %(deadline_at)s::timestamptz[], %(count)s::integer[],
            %(last_event_id)s::uuid[], %(collected)s::text[])
  AS n(schedule_id, key, namespace_id, id, opened_at, deadline_at, count, last_event_id, collected)
ON CONFLICT (schedule_id, key) DO UPDATE
SET id = excluded.id, opened_at = excluded.opened_at, deadline_at = excluded.deadline_at,
    count = excluded.count, last_event_id = excluded.last_event_id, collected = excluded.collected"""

_CLOSE_WINDOWS = """
DELETE FROM sched_event_window w USING unnest(%(schedules)s::uuid[], %(keys)s::text[]) AS k(schedule_id, key)
WHERE w.schedule_id = k.schedule_id AND w.key = k.key"""

_DUE_IN = """
SELECT n.id FROM unnest(%(namespaces)s::integer[]) AS n(id)
WHERE EXISTS (SELECT FROM sched_event_window w
              WHERE w.namespace_id = n.id AND w.deadline_at <= clock_timestamp())"""

_DUE = """
SELECT schedule_id, key FROM sched_event_window
WHERE namespace_id = %(namespace_id)s AND deadline_at <= %(now)s ORDER BY deadline_at LIMIT %(most)s"""

_EFFECTS = """
INSERT INTO sched_event_effect (event_id, schedule_id, outcome, task_id, window_id, depth, detail)
SELECT event_id, schedule_id, outcome, task_id, window_id, depth, detail
FROM unnest(%(event_id)s::uuid[], %(schedule_id)s::uuid[], %(outcome)s::text[], %(task_id)s::uuid[],
            %(window_id)s::uuid[], %(depth)s::smallint[], %(detail)s::text[])
  AS n(event_id, schedule_id, outcome, task_id, window_id, depth, detail)
ON CONFLICT (event_id, schedule_id) DO UPDATE
SET outcome = excluded.outcome, task_id = excluded.task_id, detail = excluded.detail"""

_EVENTS = """
SELECT id, namespace_id, name, payload, key, depth, created_at
FROM sched_event WHERE id = ANY(%(ids)s::uuid[])"""

_COUNT_FIRES = """
UPDATE sched_schedule s SET fired_count = s.fired_count + c.number
FROM unnest(%(ids)s::uuid[], %(numbers)s::integer[]) AS c(id, number) WHERE s.id = c.id"""

_TRIGGERS = """
INSERT INTO sched_event_trigger (namespace_id, pattern, schedule_id)
SELECT * FROM unnest(%(namespaces)s::integer[], %(patterns)s::text[], %(schedules)s::uuid[])
ON CONFLICT DO NOTHING"""


async def any_to_match(connection: Connection) -> bool:
    """Tell whether there are events to match; somebody else may be matching them."""
    return bool(await connection.execute(_ANY))


async def take(connection: Connection, most: int) -> tuple[list[UUID], list[TakenEvent]]:
    """Take up to `most` events for this transaction; return what to tick off, and those that are there."""
    rows = await connection.execute(_TAKE, {"most": most})
    return [row.id for row in rows], [TakenEvent(*row) for row in rows if row.name is not None]


async def tick_off(connection: Connection, ids: Sequence[UUID]) -> None:
    await connection.execute(
        "DELETE FROM sched_event_todo WHERE event_id = ANY(%(ids)s::uuid[])", {"ids": list(ids)}
    )


async def waiting(connection: Connection, wanted: Collection[tuple[int, str]]) -> dict[UUID, WaitingSchedule]:
    """Return the schedules that wait for events by one of these patterns, each of a namespace."""
    rows = await connection.execute(
        _WAITING,
        {"namespaces": [one[0] for one in wanted], "patterns": [one[1] for one in wanted]},
    )
    return {row.id: WaitingSchedule(*row) for row in rows}


async def waiting_by_id(connection: Connection, ids: Collection[UUID]) -> dict[UUID, WaitingSchedule]:
    """Return those of them that are enabled."""
    rows = await connection.execute(_BY_ID, {"ids": list(ids)})
    return {row.id: WaitingSchedule(*row) for row in rows}


async def lock(connection: Connection, ids: Collection[UUID]) -> dict[UUID, int]:
    """Lock schedules in the order of their ids; return the version of each."""
    return {row.id: row.version for row in await connection.execute(_LOCK, {"ids": list(ids)})}


async def windows(
    connection: Connection, keys: Collection[tuple[UUID, str]]
) -> dict[tuple[UUID, str], Window]:
    rows = await connection.execute(
        _WINDOWS, {"schedules": [one[0] for one in keys], "keys": [one[1] for one in keys]}
    )
    return {(row.schedule_id, row.key): _window(row) for row in rows}


async def keep_windows(
    connection: Connection, kept: Mapping[tuple[UUID, str], Window], namespaces: Mapping[UUID, int]
) -> None:
    """Write windows of locked schedules; `namespaces` says where the schedules are."""
    rows = [
        _WindowRow(
            schedule_id,
            key,
            namespaces[schedule_id],
            window.id,
            window.opened_at,
            window.deadline_at,
            window.count,
            window.last_event,
            _collected_json(window),
        )
        for (schedule_id, key), window in kept.items()
    ]
    if rows:
        await connection.execute(_KEEP_WINDOWS, transpose(_WindowRow, rows))


async def close_windows(connection: Connection, keys: Collection[tuple[UUID, str]]) -> None:
    if keys:
        await connection.execute(
            _CLOSE_WINDOWS, {"schedules": [one[0] for one in keys], "keys": [one[1] for one in keys]}
        )


async def due_in(connection: Connection, namespaces: Sequence[int]) -> list[int]:
    """Return in which namespaces a deadline has come."""
    return (await connection.execute(_DUE_IN, {"namespaces": list(namespaces)})).scalars().all()


async def due(connection: Connection, namespace_id: int, now: datetime, most: int) -> list[tuple[UUID, str]]:
    """Return whose deadline has come: the schedule and the key."""
    rows = await connection.execute(_DUE, {"namespace_id": namespace_id, "now": now, "most": most})
    return [(row.schedule_id, row.key) for row in rows]


async def write_effects(connection: Connection, effects: Sequence[NewEffect]) -> None:
    if effects:
        await connection.execute(_EFFECTS, transpose(NewEffect, effects))


async def events(connection: Connection, ids: Collection[UUID]) -> dict[UUID, TakenEvent]:
    rows = await connection.execute(_EVENTS, {"ids": list(ids)})
    return {row.id: TakenEvent(*row) for row in rows}


async def count_fires(connection: Connection, fires: Mapping[UUID, int]) -> None:
    """Add to the counts of locked schedules."""
    await connection.execute(_COUNT_FIRES, {"ids": list(fires), "numbers": list(fires.values())})


async def forget_triggers(connection: Connection, schedules: Sequence[UUID]) -> None:
    await connection.execute(
        "DELETE FROM sched_event_trigger WHERE schedule_id = ANY(%(ids)s::uuid[])", {"ids": list(schedules)}
    )


async def forget_windows(connection: Connection, schedules: Sequence[UUID]) -> None:
    await connection.execute(
        "DELETE FROM sched_event_window WHERE schedule_id = ANY(%(ids)s::uuid[])", {"ids": list(schedules)}
    )


async def write_triggers(
    connection: Connection, namespace_id: int, patterns: Iterable[tuple[str, UUID]]
) -> None:
    rows = list(patterns)
    if rows:
        await connection.execute(
            _TRIGGERS,
            {
                "namespaces": [namespace_id] * len(rows),
                "patterns": [one[0] for one in rows],
                "schedules": [one[1] for one in rows],
            },
        )


def _window(row: Any) -> Window:
    collected = {
        int(place): Collected(UUID(event_id), datetime.fromisoformat(at))
        for place, (event_id, at) in row.collected.items()
    }
    return Window(row.id, row.opened_at, row.deadline_at, row.count, row.last_event_id, collected)


def _collected_json(window: Window) -> str:
    return msgspec.json.encode(
        {str(place): [str(one.event_id), one.at.isoformat()] for place, one in window.collected.items()}
    ).decode()
