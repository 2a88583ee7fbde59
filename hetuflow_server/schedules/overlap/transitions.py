"""The verbs that release and queue fires that wait for each other; beside `queue/transitions.py`, which see.

All of them are for transactions that have locked the schedule. They wait for nobody: what somebody else has
locked is left to staging, which looks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hetuflow_server.postgres.database import Connection

# A flow's own instance, which has no lease, waits on: for its run to begin.
_RELEASE = """
UPDATE sched_task_instance
SET status = CASE WHEN lease_ms IS NULL THEN 'held' ELSE 'pending' END,
    held_reason = CASE WHEN lease_ms IS NULL THEN 'flow' END
WHERE id = ANY(ARRAY(
  SELECT id FROM sched_task_instance
  WHERE id = ANY(%(ids)s::uuid[]) AND held_reason IN ('overlap', 'queue')
  ORDER BY id FOR UPDATE SKIP LOCKED))
  AND status = 'held'
RETURNING id"""

_QUEUE = """
UPDATE sched_task_instance SET held_reason = 'queue'
WHERE id = ANY(ARRAY(
  SELECT id FROM sched_task_instance
  WHERE id = ANY(%(ids)s::uuid[]) AND held_reason = 'overlap'
  ORDER BY id FOR UPDATE SKIP LOCKED))
  AND status = 'held'
RETURNING id"""


async def release(connection: Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Let fires go that waited for another of their schedule."""
    rows = await connection.execute(_RELEASE, {"ids": list(ids)})
    return set(rows.scalars())


async def queue(connection: Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Note that due fires wait for the one before them."""
    rows = await connection.execute(_QUEUE, {"ids": list(ids)})
    return set(rows.scalars())
