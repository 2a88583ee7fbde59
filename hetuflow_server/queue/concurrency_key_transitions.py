"""The verbs that hold and release instances by their concurrency key; beside `transitions.py`, which see.

All of them are for transactions that have locked the limits of these keys, so they touch instances with
SKIP LOCKED only. What they miss because somebody else has it locked, the sweeper finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from hetuflow_core.limits import Scope
from hetuflow_server.postgres.database import Connection

# More at once would hold up whoever waits for the key; the sweeper goes on where a release ended.
MOST_AT_ONCE = 1_000

_HOLD = f"""
UPDATE sched_task_instance SET status = 'held', held_reason = 'key'
WHERE status = 'pending' AND id = ANY(ARRAY(
  SELECT i.id FROM unnest(%(namespaces)s::integer[], %(keys)s::text[]) AS k(namespace_id, key)
  CROSS JOIN LATERAL (
    SELECT id FROM sched_task_instance
    WHERE waits AND concurrency_key IS NOT NULL AND namespace_id = k.namespace_id
      AND concurrency_key = k.key AND due_at <= now() + %(prefetch)s
    ORDER BY due_at, id LIMIT {MOST_AT_ONCE} FOR UPDATE SKIP LOCKED) i))"""

_RELEASE = f"""
UPDATE sched_task_instance SET status = 'pending', held_reason = NULL
WHERE status = 'held' AND held_reason = 'key' AND id = ANY(ARRAY(
  SELECT i.id FROM unnest(%(namespaces)s::integer[], %(keys)s::text[], %(rooms)s::integer[])
                     AS k(namespace_id, key, room)
  CROSS JOIN LATERAL (
    SELECT id FROM sched_task_instance
    WHERE status = 'held' AND held_reason = 'key' AND namespace_id = k.namespace_id
      AND concurrency_key = k.key
    ORDER BY priority DESC, due_at, id LIMIT least(k.room, {MOST_AT_ONCE}) FOR UPDATE SKIP LOCKED) i))
RETURNING namespace_id, concurrency_key"""


async def hold(connection: Connection, keys: Iterable[Scope], prefetch: timedelta) -> int:
    """Hold what is due of these keys, which are full: no claim meets it again until one is free."""
    listed = list(keys)
    result = await connection.execute(
        _HOLD,
        {
            "namespaces": [key.namespace_id for key in listed],
            "keys": [key.name for key in listed],
            "prefetch": prefetch,
        },
    )
    return result.rowcount


async def release(connection: Connection, rooms: Mapping[Scope, int]) -> set[Scope]:
    """Release as many of each key as it has room for, the next first; return the keys that had any."""
    rows = await connection.execute(
        _RELEASE,
        {
            "namespaces": [key.namespace_id for key in rooms],
            "keys": [key.name for key in rooms],
            "rooms": list(rooms.values()),
        },
    )
    return {Scope(row.namespace_id, row.concurrency_key) for row in rows}


# A loose index scan: one probe per key, however many are held behind it.
_HELD_KEYS = """
WITH RECURSIVE held AS (
  (SELECT concurrency_key FROM sched_task_instance
   WHERE status = 'held' AND held_reason = 'key' AND namespace_id = %(namespace_id)s
     AND concurrency_key > %(key)s
   ORDER BY concurrency_key LIMIT 1)
  UNION ALL
  SELECT next.* FROM held h CROSS JOIN LATERAL (
    SELECT concurrency_key FROM sched_task_instance
    WHERE status = 'held' AND held_reason = 'key' AND namespace_id = %(namespace_id)s
      AND concurrency_key > h.concurrency_key
    ORDER BY concurrency_key LIMIT 1) next)
SELECT concurrency_key FROM held LIMIT %(most)s"""


async def held_keys(connection: Connection, after: Scope, most: int) -> list[Scope]:
    """Return keys of a namespace that hold somebody back, in their order, from behind `after`."""
    rows = await connection.execute(
        _HELD_KEYS, {"namespace_id": after.namespace_id, "key": after.name, "most": most}
    )
    return [Scope(after.namespace_id, key) for key in rows.scalars()]
