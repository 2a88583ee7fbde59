"""Reading the queue: the backlog, the next due time, and the claims that agents hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.postgres.batches import transpose
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.sql_fragments import LEASE, STATUS_BY_ID, by_key
from hetuflow_server.queue.rows import ProgressNote

# A loose index scan: one index probe per backlog entry, however many instances it has.
_BACKLOG = """
WITH RECURSIVE head AS (
  (SELECT namespace_id, placement_id, priority, due_at FROM sched_task_instance
   WHERE waits AND target_agent_id IS NULL
   ORDER BY namespace_id, placement_id, priority, due_at LIMIT 1)
  UNION ALL
  SELECT next.* FROM head h CROSS JOIN LATERAL (
    SELECT namespace_id, placement_id, priority, due_at FROM sched_task_instance
    WHERE waits AND target_agent_id IS NULL
      AND (namespace_id, placement_id, priority) > (h.namespace_id, h.placement_id, h.priority)
    ORDER BY namespace_id, placement_id, priority, due_at LIMIT 1) next)
SELECT due_at, namespace_id, placement_id, priority FROM head"""

# The same for instances that are bound to an agent; a single probe when there are none.
_TARGETED_BACKLOG = """
WITH RECURSIVE head AS (
  (SELECT target_agent_id, namespace_id, placement_id, priority, due_at FROM sched_task_instance
   WHERE waits AND target_agent_id IS NOT NULL
   ORDER BY target_agent_id, namespace_id, placement_id, priority, due_at LIMIT 1)
  UNION ALL
  SELECT next.* FROM head h CROSS JOIN LATERAL (
    SELECT target_agent_id, namespace_id, placement_id, priority, due_at FROM sched_task_instance
    WHERE waits AND target_agent_id IS NOT NULL
      AND (target_agent_id, namespace_id, placement_id, priority)
            > (h.target_agent_id, h.namespace_id, h.placement_id, h.priority)
    ORDER BY target_agent_id, namespace_id, placement_id, priority, due_at LIMIT 1) next)
SELECT due_at, namespace_id, placement_id, priority, target_agent_id FROM head"""

_NEXT_DUE_OF_ENTRIES = """
SELECT min(n.due_at)
FROM unnest(%(namespaces)s::integer[], %(placements)s::bigint[], %(priorities)s::smallint[],
            %(targets)s::uuid[]) AS h(namespace_id, placement_id, priority, target_agent_id)
CROSS JOIN LATERAL (
  SELECT due_at FROM sched_task_instance
  WHERE waits AND {target} AND namespace_id = h.namespace_id
    AND placement_id = h.placement_id AND priority = h.priority
  ORDER BY due_at, id LIMIT 1) n"""
_NEXT_DUE = _NEXT_DUE_OF_ENTRIES.format(target="target_agent_id IS NULL")
_NEXT_TARGETED_DUE = _NEXT_DUE_OF_ENTRIES.format(target="target_agent_id = h.target_agent_id")


async def backlog(connection: Connection) -> dict[BacklogEntry, datetime]:
    """Return {backlog entry: when its first instance is due}."""
    rows = [*await connection.execute(_BACKLOG), *await connection.execute(_TARGETED_BACKLOG)]
    return {BacklogEntry(*entry): due_at for due_at, *entry in rows}


async def next_due(connection: Connection, among: Collection[BacklogEntry]) -> datetime | None:
    """Return when the first pending instance of these entries is due; None: they have none."""
    bound = [entry for entry in among if entry.target is not None]
    unbound = [entry for entry in among if entry.target is None]
    first_due: list[datetime | None] = []
    for statement, entries in ((_NEXT_DUE, unbound), (_NEXT_TARGETED_DUE, bound)):
        if entries:
            row = await connection.execute(
                statement,
                {
                    "namespaces": [entry.namespace_id for entry in entries],
                    "placements": [entry.placement_id for entry in entries],
                    "priorities": [entry.priority for entry in entries],
                    "targets": [entry.target for entry in entries],
                },
            )
            first_due.append(row.scalar_one())
    return min((due_at for due_at in first_due if due_at is not None), default=None)


_RENEW = f"""
UPDATE sched_task_instance i
SET lease_until = CASE WHEN i.status = 'running'
                       THEN clock_timestamp() + {LEASE} END,
    reserved_until = CASE WHEN i.status = 'reserved'
                          THEN greatest(clock_timestamp(), i.due_at) + %(reservation)s END
FROM unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) AS h(id, token)
WHERE {by_key("i.id", "h.id")} AND i.token = h.token AND {STATUS_BY_ID} IN ('reserved', 'running')
RETURNING i.id, i.token, i.status = 'running' AS running, i.cancel_requested"""

_LOOK_UP = f"""
SELECT i.id, i.token, i.status = 'running' AS running, i.cancel_requested
FROM unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) AS h(id, token)
JOIN sched_task_instance i ON {by_key("i.id", "h.id")}
WHERE i.token = h.token AND {STATUS_BY_ID} IN ('reserved', 'running')"""

_ADOPT = f"""
UPDATE sched_task_instance i
SET session_id = %(session_id)s, lease_until = clock_timestamp() + {LEASE}
FROM unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) AS h(id, token)
WHERE {by_key("i.id", "h.id")} AND i.token = h.token AND i.agent_id = %(agent_id)s
  AND {STATUS_BY_ID} = 'running'
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
    connection: Connection,
    held: Sequence[tuple[UUID, UUID]],
    reservation: timedelta,
) -> list[HeldClaim]:
    """Renew leases and reservations by their tokens; what is missing in the answer is no longer held."""
    rows = await connection.execute(
        _RENEW,
        {"ids": [id_ for id_, _ in held], "tokens": [token for _, token in held], "reservation": reservation},
    )
    return [HeldClaim(row.id, row.token, row.running, row.cancel_requested) for row in rows]


async def look_up(connection: Connection, held: Sequence[tuple[UUID, UUID]]) -> list[HeldClaim]:
    """Return what is still claimed under these tokens, without renewing it."""
    rows = await connection.execute(
        _LOOK_UP,
        {"ids": [id_ for id_, _ in held], "tokens": [token for _, token in held]},
    )
    return [HeldClaim(row.id, row.token, row.running, row.cancel_requested) for row in rows]


async def adopt(
    connection: Connection,
    agent_id: UUID,
    session_id: UUID,
    held: Sequence[tuple[UUID, UUID]],
) -> list[UUID]:
    """Give a new session of an agent what an earlier one was running, by token."""
    rows = await connection.execute(
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
    connection: Connection,
    agents: Sequence[UUID],
) -> dict[UUID, list[tuple[UUID, UUID]]]:
    """Return {session: [(instance, token)]} of what these agents are to end; one query for all of them."""
    rows = await connection.execute(_CANCELS, {"agents": list(agents)})
    found: dict[UUID, list[tuple[UUID, UUID]]] = {}
    for row in rows:
        found.setdefault(row.session_id, []).append((row.id, row.token))
    return found


async def cancelled_claims(connection: Connection) -> list[tuple[UUID, UUID]]:
    """Return (agent, token) of every claim that somebody wants ended."""
    rows = await connection.execute(
        "SELECT agent_id, token FROM sched_task_instance WHERE cancel_requested AND agent_id IS NOT NULL"
    )
    return [(row.agent_id, row.token) for row in rows]


async def weights(connection: Connection) -> dict[int, int]:
    """Return {namespace: its share}."""
    rows = await connection.execute("SELECT id, weight FROM sched_namespace")
    return {row.id: row.weight for row in rows}


_EXPIRED = f"""
SELECT id FROM sched_task_instance i
WHERE namespace_id = %(namespace_id)s AND claimed
  AND CASE status WHEN 'running' THEN lease_until < clock_timestamp()
                  ELSE cancel_requested AND reserved_until < clock_timestamp() END
  AND {LEASE} / 2 > clock_timestamp() - (SELECT rescued_at FROM sched_namespace WHERE id = %(namespace_id)s)
ORDER BY id LIMIT %(most)s"""

# The servers were away for longer than half a lease: agents get one more lease to come back in; once, so not
# those whose lease still is what such an extension made of it.
_EXTEND_AFTER_OUTAGE = f"""
UPDATE sched_task_instance i SET lease_until = %(at)s + {LEASE}
WHERE namespace_id = %(namespace_id)s AND claimed AND status = 'running'
  AND lease_until < %(at)s + {LEASE} AND {LEASE} / 2 < %(away)s
  AND lease_until - {LEASE} <> ALL(%(extended)s::timestamptz[])"""

# One look at all of a server's namespaces: most have nothing to rescue, and then this was all there is to do.
_LOOK_FOR_RESCUE = """
SELECT n.id, clock_timestamp() AS at, coalesce(n.rescued_at, n.created_at) AS noted_at,
       EXISTS (
         SELECT FROM sched_task_instance i
         WHERE i.namespace_id = n.id AND i.claimed
           AND CASE i.status WHEN 'running' THEN i.lease_until ELSE i.reserved_until END < clock_timestamp())
       OR coalesce((
         SELECT i.deadline_at FROM sched_task_instance i
         WHERE i.namespace_id = n.id AND i.deadline_at IS NOT NULL AND NOT i.cancel_requested
         ORDER BY i.deadline_at LIMIT 1) <= clock_timestamp(), false) AS needed
FROM sched_namespace n WHERE n.id = ANY(%(namespaces)s::integer[]) ORDER BY n.id"""

_NOTE_RESCUE = """
UPDATE sched_namespace n SET rescued_at = clock_timestamp()
FROM (SELECT id, rescued_at FROM sched_namespace WHERE id = ANY(%(namespaces)s::integer[])
      ORDER BY id FOR NO KEY UPDATE) before
WHERE n.id = before.id
RETURNING n.id, n.rescued_at AS at, coalesce(before.rescued_at, n.created_at) AS before"""


@dataclass(frozen=True, slots=True)
class RescueLook:
    namespace_id: int
    at: datetime
    # When somebody last wrote down that they had looked.
    noted_at: datetime
    # Something has expired or is overdue.
    needed: bool


@dataclass(frozen=True, slots=True)
class RescueNote:
    at: datetime
    # The note before this one.
    before: datetime


async def look_for_rescue(connection: Connection, namespaces: Sequence[int]) -> list[RescueLook]:
    rows = await connection.execute(_LOOK_FOR_RESCUE, {"namespaces": list(namespaces)})
    return [RescueLook(*row) for row in rows]


async def note_rescue(connection: Connection, namespaces: Sequence[int]) -> dict[int, RescueNote]:
    """Write down that expired claims are being looked for."""
    rows = await connection.execute(_NOTE_RESCUE, {"namespaces": list(namespaces)})
    return {row.id: RescueNote(row.at, row.before) for row in rows}


async def extend_after_outage(
    connection: Connection, namespace_id: int, at: datetime, away: timedelta, extended: Sequence[datetime]
) -> int:
    """Let leases that an outage was too long for begin anew `at` that time; `extended` says when they did."""
    result = await connection.execute(
        _EXTEND_AFTER_OUTAGE,
        {"namespace_id": namespace_id, "at": at, "away": away, "extended": list(extended)},
    )
    return result.rowcount


async def expired(connection: Connection, namespace_id: int, most: int) -> list[UUID]:
    """Return claims that have run out; whoever ends them guards against their renewal meanwhile.

    None unless a look was noted within half of their lease: a server stopped after its look does not know
    whether anybody was there to hear the agents since.
    """
    rows = await connection.execute(_EXPIRED, {"namespace_id": namespace_id, "most": most})
    return list(rows.scalars())


# Only those with something left to end: a claim that was asked to end is its agent's turn, then its lease's.
# The time is read once, or an index could not end there.
_OVERDUE = """
SELECT task_id FROM sched_task_instance
WHERE namespace_id = %(namespace_id)s AND deadline_at <= (SELECT clock_timestamp()) AND NOT cancel_requested
ORDER BY deadline_at LIMIT %(most)s"""


async def overdue(connection: Connection, namespace_id: int, most: int) -> list[UUID]:
    """Return unfinished tasks at their deadline; whoever ends them locks them and looks again."""
    rows = await connection.execute(_OVERDUE, {"namespace_id": namespace_id, "most": most})
    return list(rows.scalars())


_NOTE_PROGRESS = f"""
UPDATE sched_task_instance i SET progress = n.progress::jsonb
FROM unnest(%(instance_id)s::uuid[], %(token)s::uuid[], %(progress)s::text[]) AS n(id, token, progress)
WHERE {by_key("i.id", "n.id")} AND i.token = n.token AND {STATUS_BY_ID} = 'running'"""


async def note_progress(connection: Connection, notes: Sequence[ProgressNote]) -> None:
    """Write down how far running instances say they have come; in the order of ids, as they were renewed."""
    ordered = sorted(notes, key=lambda note: note.instance_id)
    await connection.execute(_NOTE_PROGRESS, transpose(ProgressNote, ordered))
