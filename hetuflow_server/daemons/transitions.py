"""The verbs about slots of daemons; beside `queue/transitions.py`, which see.

A slot's row is locked behind tasks and instances and before limits, by (schedule, slot). Whoever makes an
instance in a slot moves its `incarnation` on from what it was seen as: of two, one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from hetuflow_server.postgres.batches import Int, transpose
from hetuflow_server.postgres.database import Connection
from hetuflow_server.postgres.sql_fragments import STATUS_BY_ID, by_key


@dataclass(frozen=True, slots=True)
class SlotEnd:
    """How the newest instance of a slot ended, and what that means for the next."""

    schedule_id: UUID
    slot: Int
    crashes: Int
    rests: bool
    not_before: datetime | None
    last_status: str
    last_reason: str | None
    last_exit_code: Int | None
    last_ended_at: datetime


@dataclass(frozen=True, slots=True)
class SlotStart:
    schedule_id: UUID
    slot: Int
    namespace_id: Int
    # As it was seen; 0 when there was no such slot.
    incarnation: Int
    template: str
    agent_id: UUID | None


@dataclass(frozen=True, slots=True)
class ReadinessNote:
    """What a claimed instance of a daemon answers to its readiness probe."""

    instance_id: UUID
    token: UUID
    ready: bool


_LOCK = """
SELECT d.schedule_id, d.slot, d.crashes FROM sched_daemon_slot d
JOIN unnest(%(schedules)s::uuid[], %(slots)s::integer[]) AS w(schedule_id, slot) USING (schedule_id, slot)
ORDER BY d.schedule_id, d.slot FOR UPDATE OF d"""

_NOTE_ENDS = """
UPDATE sched_daemon_slot d
SET crashes = e.crashes, rests = e.rests, not_before = e.not_before, ready_since = NULL,
    last_status = e.last_status, last_reason = e.last_reason, last_exit_code = e.last_exit_code,
    last_ended_at = e.last_ended_at
FROM unnest(%(schedule_id)s::uuid[], %(slot)s::integer[], %(crashes)s::integer[], %(rests)s::boolean[],
            %(not_before)s::timestamptz[], %(last_status)s::text[], %(last_reason)s::text[],
            %(last_exit_code)s::integer[], %(last_ended_at)s::timestamptz[])
  AS e(schedule_id, slot, crashes, rests, not_before, last_status, last_reason, last_exit_code, last_ended_at)
WHERE d.schedule_id = e.schedule_id AND d.slot = e.slot"""

_ADD = """
INSERT INTO sched_daemon_slot (schedule_id, slot, namespace_id)
SELECT schedule_id, slot, namespace_id
FROM unnest(%(schedule_id)s::uuid[], %(slot)s::integer[], %(namespace_id)s::integer[])
  AS n(schedule_id, slot, namespace_id)
ORDER BY schedule_id, slot
ON CONFLICT (schedule_id, slot) DO NOTHING"""

# An agent belongs to one slot of a daemon; a slot that has changed hands gives its former agent up first.
_UNBIND = """
UPDATE sched_daemon_slot d SET agent_id = NULL
FROM unnest(%(schedule_id)s::uuid[], %(slot)s::integer[], %(agent_id)s::uuid[])
       AS n(schedule_id, slot, agent_id)
WHERE d.schedule_id = n.schedule_id AND d.agent_id = n.agent_id AND d.slot <> n.slot"""

_MOVE_ON = """
UPDATE sched_daemon_slot d
SET incarnation = d.incarnation + 1, template = n.template, agent_id = n.agent_id, ready_since = NULL,
    restarts = d.restarts + (d.incarnation > 0 AND NOT d.retired)::integer, rests = false, replace = false,
    retired = false
FROM unnest(%(schedule_id)s::uuid[], %(slot)s::integer[], %(incarnation)s::integer[], %(template)s::text[],
            %(agent_id)s::uuid[]) AS n(schedule_id, slot, incarnation, template, agent_id)
WHERE d.schedule_id = n.schedule_id AND d.slot = n.slot AND d.incarnation = n.incarnation
  AND NOT EXISTS (SELECT FROM sched_task_instance i
                  WHERE i.schedule_id = d.schedule_id AND i.slot = d.slot)
RETURNING d.schedule_id, d.slot"""

_RETIRE = """
UPDATE sched_daemon_slot d
SET retired = true, rests = false, replace = false, crashes = 0, not_before = NULL, ready_since = NULL
FROM unnest(%(schedules)s::uuid[], %(slots)s::integer[]) AS w(schedule_id, slot)
WHERE d.schedule_id = w.schedule_id AND d.slot = w.slot
  AND NOT EXISTS (SELECT FROM sched_task_instance i
                  WHERE i.schedule_id = d.schedule_id AND i.slot = d.slot)"""

_UNTIE = """
UPDATE sched_task_instance SET target_agent_id = NULL
WHERE id = ANY(ARRAY(
  SELECT id FROM sched_task_instance
  WHERE id = ANY(%(ids)s::uuid[]) AND status IN ('held', 'pending') AND slot IS NOT NULL
  ORDER BY id FOR UPDATE SKIP LOCKED))"""

_MARK = """
UPDATE sched_task t SET reason = m.reason
FROM unnest(%(tasks)s::uuid[], %(reasons)s::text[]) AS m(id, reason)
WHERE t.id = m.id AND t.status IN ('pending', 'waiting_retry')"""

_ASK_TO_REPLACE = """
UPDATE sched_daemon_slot SET replace = true
WHERE schedule_id = %(schedule_id)s AND NOT retired AND (%(slot)s::integer IS NULL OR slot = %(slot)s)
RETURNING slot"""

_NOTE_READINESS = f"""
WITH named AS MATERIALIZED (
  SELECT i.schedule_id, i.slot, n.ready
  FROM unnest(%(instance_id)s::uuid[], %(token)s::uuid[], %(ready)s::boolean[]) AS n(id, token, ready)
  JOIN sched_task_instance i ON {by_key("i.id", "n.id")} AND i.token = n.token
    AND {STATUS_BY_ID} = 'running'),
said AS (
  SELECT d.schedule_id, d.slot, named.ready
  FROM named
  JOIN sched_daemon_slot d ON {by_key("d.schedule_id", "named.schedule_id")} AND d.slot = named.slot
  WHERE (d.ready_since IS NOT NULL) <> named.ready
  ORDER BY d.schedule_id, d.slot FOR UPDATE OF d)
UPDATE sched_daemon_slot d SET ready_since = CASE WHEN said.ready THEN clock_timestamp() END
FROM said WHERE {by_key("d.schedule_id", "said.schedule_id")} AND d.slot = said.slot
RETURNING d.namespace_id"""


async def lock(connection: Connection, wanted: Sequence[tuple[UUID, int]]) -> dict[tuple[UUID, int], int]:
    """Lock slots; return {slot: how often in a row it has crashed}."""
    rows = await connection.execute(_LOCK, _pairs(wanted))
    return {(row.schedule_id, row.slot): row.crashes for row in rows}


async def note_ends(connection: Connection, ends: Sequence[SlotEnd]) -> None:
    """Write down how the newest instances of locked slots ended."""
    if ends:
        await connection.execute(_NOTE_ENDS, transpose(SlotEnd, ends))


async def move_on(connection: Connection, starts: Sequence[SlotStart]) -> set[tuple[UUID, int]]:
    """Take the next incarnation of slots; return those that were as they were seen, and empty."""
    ordered = sorted(starts, key=lambda one: (one.schedule_id, one.slot))
    if not ordered:
        return set()
    columns = transpose(SlotStart, ordered)
    await connection.execute(_ADD, columns)
    await connection.execute(_LOCK, _pairs([(one.schedule_id, one.slot) for one in ordered]))
    if any(one.agent_id is not None for one in ordered):
        await connection.execute(_UNBIND, columns)
    rows = await connection.execute(_MOVE_ON, columns)
    return {(row.schedule_id, row.slot) for row in rows}


async def retire(connection: Connection, wanted: Sequence[tuple[UUID, int]]) -> None:
    """Let go of slots in which nothing lives."""
    if wanted:
        await connection.execute(_LOCK, _pairs(wanted))
        await connection.execute(_RETIRE, _pairs(wanted))


async def untie(connection: Connection, instances: Sequence[UUID]) -> None:
    """Let any agent take instances that were offered to one."""
    if instances:
        await connection.execute(_UNTIE, {"ids": list(instances)})


async def mark(connection: Connection, reasons: Sequence[tuple[UUID, str]]) -> None:
    """Note why locked tasks are about to be ended: (task, reason)."""
    await connection.execute(
        _MARK, {"tasks": [task for task, _ in reasons], "reasons": [reason for _, reason in reasons]}
    )


async def ask_to_replace(connection: Connection, schedule_id: UUID, slot: int | None) -> list[int]:
    """Have the slots of a daemon, or one of them, started anew; return which."""
    rows = await connection.execute(_ASK_TO_REPLACE, {"schedule_id": schedule_id, "slot": slot})
    return sorted(rows.scalars())


async def note_readiness(connection: Connection, notes: Sequence[ReadinessNote]) -> set[int]:
    """Write down what has become ready, or is so no more; return the namespaces in which that is news."""
    rows = await connection.execute(_NOTE_READINESS, transpose(ReadinessNote, notes))
    return set(rows.scalars())


def _pairs(wanted: Sequence[tuple[UUID, int]]) -> dict[str, list[object]]:
    return {"schedules": [schedule for schedule, _ in wanted], "slots": [slot for _, slot in wanted]}
