"""Reading the queue: which heads have work, when the next is due, what agents hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from hetuflow_core.fairness import Head

# A loose index scan: one probe per head, however many rows wait behind it.
_HEADS = """
WITH RECURSIVE head AS (
  (SELECT namespace_id, placement_id, priority FROM sched_task_instance
   WHERE status = 'pending' AND target_agent_id IS NULL
   ORDER BY namespace_id, placement_id, priority LIMIT 1)
  UNION ALL
  SELECT next.* FROM head h CROSS JOIN LATERAL (
    SELECT namespace_id, placement_id, priority FROM sched_task_instance
    WHERE status = 'pending' AND target_agent_id IS NULL
      AND (namespace_id, placement_id, priority) > (h.namespace_id, h.placement_id, h.priority)
    ORDER BY namespace_id, placement_id, priority LIMIT 1) next)
SELECT namespace_id, placement_id, priority FROM head"""

_NEXT_DUE = """
SELECT min(n.due_at)
FROM unnest(%(namespaces)s::integer[], %(placements)s::bigint[], %(priorities)s::smallint[])
       AS h(namespace_id, placement_id, priority)
CROSS JOIN LATERAL (
  SELECT due_at FROM sched_task_instance
  WHERE status = 'pending' AND target_agent_id IS NULL AND namespace_id = h.namespace_id
    AND placement_id = h.placement_id AND priority = h.priority
  ORDER BY due_at, id LIMIT 1) n"""


async def heads(connection: AsyncConnection) -> list[Head]:
    rows = await connection.exec_driver_sql(_HEADS)
    return [Head(row.namespace_id, row.placement_id, row.priority) for row in rows]


async def next_due(connection: AsyncConnection, among: Sequence[Head]) -> datetime | None:
    """Return when the first of what waits in these heads becomes due."""
    row = await connection.exec_driver_sql(
        _NEXT_DUE,
        {
            "namespaces": [head.namespace_id for head in among],
            "placements": [head.placement_id for head in among],
            "priorities": [head.priority for head in among],
        },
    )
    due: datetime | None = row.scalar_one()
    return due


_RENEW = """
UPDATE sched_task_instance i
SET lease_until = CASE WHEN i.status = 'running'
                       THEN clock_timestamp() + make_interval(secs => i.lease_ms / 1000.0) END,
    reserved_until = CASE WHEN i.status = 'reserved'
                          THEN greatest(clock_timestamp(), i.due_at) + %(reservation)s END
FROM unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) AS h(id, token)
WHERE i.id = h.id AND i.token = h.token AND i.status IN ('reserved', 'running')
RETURNING i.id, i.token, i.status = 'running' AS running, i.cancel_requested"""

_LOOK_UP = """
SELECT i.id, i.token, i.status = 'running' AS running, i.cancel_requested
FROM unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) AS h(id, token) JOIN sched_task_instance i USING (id)
WHERE i.token = h.token AND i.status IN ('reserved', 'running')"""

_ADOPT = """
UPDATE sched_task_instance i
SET session_id = %(session_id)s, lease_until = clock_timestamp() + make_interval(secs => i.lease_ms / 1000.0)
FROM unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) AS h(id, token)
WHERE i.id = h.id AND i.token = h.token AND i.agent_id = %(agent_id)s AND i.status = 'running'
RETURNING i.id"""

_CANCELS = """
SELECT i.session_id, i.id, i.token FROM sched_task_instance i
WHERE i.agent_id = ANY(%(agents)s::uuid[]) AND i.cancel_requested AND i.status IN ('reserved', 'running')"""


@dataclass(frozen=True, slots=True)
class HeldClaim:
    id: UUID
    token: UUID
    running: bool
    cancel_requested: bool


async def renew(
    connection: AsyncConnection,
    held: Sequence[tuple[UUID, UUID]],
    reservation: timedelta,
) -> list[HeldClaim]:
    """Renew leases and reservations by their tokens; what is missing in the answer is no longer held."""
    rows = await connection.exec_driver_sql(
        _RENEW,
        {"ids": [id_ for id_, _ in held], "tokens": [token for _, token in held], "reservation": reservation},
    )
    return [HeldClaim(row.id, row.token, row.running, row.cancel_requested) for row in rows]


async def look_up(connection: AsyncConnection, held: Sequence[tuple[UUID, UUID]]) -> list[HeldClaim]:
    """Return what is still claimed under these tokens, without renewing it."""
    rows = await connection.exec_driver_sql(
        _LOOK_UP,
        {"ids": [id_ for id_, _ in held], "tokens": [token for _, token in held]},
    )
    return [HeldClaim(row.id, row.token, row.running, row.cancel_requested) for row in rows]


async def adopt(
    connection: AsyncConnection,
    agent_id: UUID,
    session_id: UUID,
    held: Sequence[tuple[UUID, UUID]],
) -> list[UUID]:
    """Give a new session of an agent what an earlier one was running, by token."""
    rows = await connection.exec_driver_sql(
        _ADOPT,
        {
            "agent_id": agent_id,
            "session_id": session_id,
            "ids": [id_ for id_, _ in held],
            "tokens": [token for _, token in held],
        },
    )
    return list(rows.scalars())


async def cancels_for(
    connection: AsyncConnection,
    agents: Sequence[UUID],
) -> dict[UUID, list[tuple[UUID, UUID]]]:
    """Return {session: [(instance, token)]} of what these agents are to end; one query for all of them."""
    rows = await connection.exec_driver_sql(_CANCELS, {"agents": list(agents)})
    found: dict[UUID, list[tuple[UUID, UUID]]] = {}
    for row in rows:
        found.setdefault(row.session_id, []).append((row.id, row.token))
    return found


async def weights(connection: AsyncConnection) -> dict[int, int]:
    """Return {namespace: its share}."""
    rows = await connection.exec_driver_sql("SELECT id, weight FROM sched_namespace")
    return {row.id: row.weight for row in rows}


_EXPIRED = """
SELECT id FROM sched_task_instance
WHERE namespace_id = %(namespace_id)s AND status IN ('reserved', 'running')
  AND CASE status WHEN 'running' THEN lease_until < clock_timestamp()
                  ELSE cancel_requested AND reserved_until < clock_timestamp() END
ORDER BY id LIMIT %(most)s"""

# The servers were away for longer than half a lease: agents get one more lease to come back in.
_EXTEND_AFTER_OUTAGE = """
UPDATE sched_task_instance
SET lease_until = clock_timestamp() + make_interval(secs => lease_ms / 1000.0)
WHERE namespace_id = %(namespace_id)s AND status = 'running'
  AND lease_until < clock_timestamp() + make_interval(secs => lease_ms / 1000.0)
  AND make_interval(secs => lease_ms / 2000.0) < %(away)s"""

_NOTE_RESCUE = """
UPDATE sched_namespace n SET rescued_at = clock_timestamp()
FROM (SELECT id, rescued_at FROM sched_namespace WHERE id = %(namespace_id)s FOR UPDATE) before
WHERE n.id = before.id
RETURNING clock_timestamp() - coalesce(before.rescued_at, n.created_at)"""


async def note_rescue(connection: AsyncConnection, namespace_id: int) -> timedelta:
    """Write down that expired claims are being looked for; return how long nobody had done so."""
    row = await connection.exec_driver_sql(_NOTE_RESCUE, {"namespace_id": namespace_id})
    away: timedelta = row.scalar_one()
    return away


async def extend_after_outage(connection: AsyncConnection, namespace_id: int, away: timedelta) -> int:
    result = await connection.exec_driver_sql(
        _EXTEND_AFTER_OUTAGE,
        {"namespace_id": namespace_id, "away": away},
    )
    return result.rowcount


async def expired(connection: AsyncConnection, namespace_id: int, most: int) -> list[UUID]:
    """Return claims that have run out; whoever ends them guards against their renewal meanwhile."""
    rows = await connection.exec_driver_sql(_EXPIRED, {"namespace_id": namespace_id, "most": most})
    return list(rows.scalars())


# Only those with something left to end: a claim that was asked to end is its agent's turn, then its lease's.
_OVERDUE = """
SELECT t.id FROM sched_task t
WHERE t.namespace_id = %(namespace_id)s AND t.finished_at IS NULL AND t.deadline_at <= clock_timestamp()
  AND EXISTS (SELECT FROM sched_task_instance i WHERE i.task_id = t.id AND NOT i.cancel_requested)
ORDER BY t.deadline_at LIMIT %(most)s"""


async def overdue(connection: AsyncConnection, namespace_id: int, most: int) -> list[UUID]:
    """Return unfinished tasks at their deadline; whoever ends them locks them and looks again."""
    rows = await connection.exec_driver_sql(_OVERDUE, {"namespace_id": namespace_id, "most": most})
    return list(rows.scalars())


async def requirements_of(
    connection: AsyncConnection, placements: Sequence[int]
) -> dict[int, dict[str, Any]]:
    """Return {class: its requirements as in a job file}."""
    rows = await connection.exec_driver_sql(
        "SELECT id, requirements FROM sched_placement WHERE id = ANY(%(ids)s::bigint[])",
        {"ids": list(placements)},
    )
    return {row.id: row.requirements for row in rows}
