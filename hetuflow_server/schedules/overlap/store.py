"""Fires of schedules that do not allow overlap: which are to be decided about, and what is under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from hetuflow_server.postgres.database import Connection

# More would be decided about in the next round: what matters is at the front.
_MOST_WAITING = 200


@dataclass(frozen=True, slots=True)
class Undecided:
    schedule_id: UUID
    id: UUID
    task_id: UUID
    due_at: datetime


@dataclass(frozen=True, slots=True)
class WaitingRow:
    schedule_id: UUID
    id: UUID
    task_id: UUID
    due_at: datetime
    queued: bool


@dataclass(frozen=True, slots=True)
class UnderWay:
    id: UUID
    task_id: UUID
    cancel_requested: bool


# One look at all of a server's namespaces: in most nothing waits, and then this was all there is to do.
# Ordered and limited, so that each question is one probe of an index, whatever the planner thinks is there.
_LOOK = """
SELECT n.id FROM unnest(%(namespaces)s::integer[]) AS n(id)
WHERE coalesce(
  (SELECT true FROM sched_task_instance i
   WHERE i.namespace_id = n.id AND i.held_reason = 'overlap' AND i.due_at <= statement_timestamp() + %(ahead)s
   ORDER BY i.due_at LIMIT 1),
  (SELECT true FROM sched_task_instance i
   WHERE i.namespace_id = n.id AND i.held_reason = 'queue' ORDER BY i.schedule_id LIMIT 1),
  (SELECT true FROM sched_backfill b
   WHERE b.namespace_id = n.id AND b.finished_at IS NULL ORDER BY b.id LIMIT 1))
ORDER BY n.id"""

_NEAR = """
SELECT schedule_id, id, task_id, due_at FROM sched_task_instance
WHERE namespace_id = %(namespace_id)s AND held_reason = 'overlap' AND due_at <= %(until)s
ORDER BY due_at, id LIMIT %(most)s"""

# A loose index scan: one probe per schedule, however many wait in its queue.
_STRANDED = """
WITH RECURSIVE queue AS (
  (SELECT schedule_id FROM sched_task_instance
   WHERE namespace_id = %(namespace_id)s AND held_reason = 'queue' ORDER BY schedule_id LIMIT 1)
  UNION ALL
  SELECT next.schedule_id FROM queue q CROSS JOIN LATERAL (
    SELECT schedule_id FROM sched_task_instance
    WHERE namespace_id = %(namespace_id)s AND held_reason = 'queue' AND schedule_id > q.schedule_id
    ORDER BY schedule_id LIMIT 1) next)
SELECT q.schedule_id FROM queue q
WHERE NOT EXISTS (
  SELECT FROM sched_task_instance i
  WHERE i.schedule_id = q.schedule_id
    AND (i.held_reason IS NULL OR i.held_reason NOT IN ('overlap', 'queue')))
LIMIT %(most)s"""

# Skips what somebody else decides about or edits at the moment: nobody waits for a schedule but editors.
_LOCK = """
SELECT id, spec->>'overlap' AS policy FROM sched_schedule
WHERE id = ANY(%(schedules)s::uuid[]) AND (%(with_allowed)s OR spec->>'overlap' <> 'allow')
ORDER BY id FOR UPDATE SKIP LOCKED"""

_WAITING = """
SELECT w.schedule_id, w.id, w.task_id, w.due_at, w.held_reason = 'queue' AS queued
FROM unnest(%(schedules)s::uuid[]) AS s(id) CROSS JOIN LATERAL (
  SELECT schedule_id, id, task_id, due_at, held_reason FROM sched_task_instance
  WHERE schedule_id = s.id AND held_reason IN ('overlap', 'queue') AND due_at <= %(until)s
  ORDER BY due_at, id LIMIT %(most)s) w"""

_BUSY = """
SELECT s.id FROM unnest(%(schedules)s::uuid[]) AS s(id)
WHERE EXISTS (
  SELECT FROM sched_task_instance i
  WHERE i.schedule_id = s.id AND (i.held_reason IS NULL OR i.held_reason NOT IN ('overlap', 'queue')))"""

_UNDER_WAY = """
SELECT id, task_id, cancel_requested FROM sched_task_instance
WHERE schedule_id = ANY(%(schedules)s::uuid[])
  AND (held_reason IS NULL OR held_reason NOT IN ('overlap', 'queue'))"""

_LOCK_TASKS = """
SELECT id FROM sched_task WHERE id = ANY(%(tasks)s::uuid[]) AND status = 'pending'
ORDER BY id FOR UPDATE SKIP LOCKED"""


async def waiting_in(connection: Connection, namespaces: Sequence[int], ahead: timedelta) -> list[int]:
    """Return those of these namespaces in which something waits that may have to be decided about."""
    rows = await connection.execute(_LOOK, {"namespaces": list(namespaces), "ahead": ahead})
    return list(rows.scalars())


async def near(connection: Connection, namespace_id: int, until: datetime, most: int) -> list[Undecided]:
    """Return held fires due by then that nothing has been decided about, soonest first."""
    rows = await connection.execute(_NEAR, {"namespace_id": namespace_id, "until": until, "most": most})
    return [Undecided(**row.as_dict()) for row in rows]


async def stranded(connection: Connection, namespace_id: int, most: int) -> list[UUID]:
    """Return schedules with a queue and nothing under way: whoever ended that did not see the queue."""
    rows = await connection.execute(_STRANDED, {"namespace_id": namespace_id, "most": most})
    return list(rows.scalars())


async def lock(connection: Connection, schedules: Sequence[UUID], *, with_allowed: bool) -> dict[UUID, str]:
    """Lock schedules nobody else holds; return {schedule: its policy}."""
    rows = await connection.execute(
        _LOCK, {"schedules": sorted(set(schedules)), "with_allowed": with_allowed}
    )
    return {row.id: row.policy for row in rows}


async def waiting(connection: Connection, schedules: Sequence[UUID], until: datetime) -> list[WaitingRow]:
    """Return the first fires that wait in each schedule, in the order of their turns."""
    rows = await connection.execute(
        _WAITING, {"schedules": list(schedules), "until": until, "most": _MOST_WAITING}
    )
    return [WaitingRow(**row.as_dict()) for row in rows]


async def busy(connection: Connection, schedules: Sequence[UUID]) -> set[UUID]:
    """Return the schedules with something under way: released, claimed, running or to be tried again."""
    rows = await connection.execute(_BUSY, {"schedules": list(schedules)})
    return set(rows.scalars())


async def under_way(connection: Connection, schedules: Sequence[UUID]) -> list[UnderWay]:
    rows = await connection.execute(_UNDER_WAY, {"schedules": list(schedules)})
    return [UnderWay(**row.as_dict()) for row in rows]


async def lock_free_tasks(connection: Connection, tasks: Sequence[UUID]) -> set[UUID]:
    """Lock pending tasks nobody else holds."""
    rows = await connection.execute(_LOCK_TASKS, {"tasks": sorted(set(tasks))})
    return set(rows.scalars())
