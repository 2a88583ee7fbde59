"""What people change about attempts that have not ended: their urgency, and that one is to end."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hetuflow_core.ids import range_of
from hetuflow_server.store.connection import Connection

# Why an attempt was ended by somebody, which its task outlives if it may be tried again.
TERMINATED = "terminated"

# Written before the attempt ends, so that whoever ends it knows why, however late that is.
_MARK_TERMINATED = f"""
UPDATE sched_task SET reason = '{TERMINATED}'
WHERE id = %(id)s AND status IN ('pending', 'waiting_retry')"""

_UNMARK_TERMINATED = f"""
UPDATE sched_task SET reason = NULL
WHERE id = ANY(ARRAY(SELECT task_id FROM sched_task_instance WHERE id = ANY(%(ids)s::uuid[])))
  AND id BETWEEN %(first)s AND %(last)s AND reason = '{TERMINATED}'
  AND status IN ('pending', 'waiting_retry')"""

_SET_PRIORITY = """
WITH task AS (
  UPDATE sched_task SET priority = %(priority)s
  WHERE id = %(id)s AND status IN ('pending', 'waiting_retry'))
UPDATE sched_task_instance SET priority = %(priority)s
WHERE task_id = %(id)s AND status IN ('held', 'pending')
RETURNING namespace_id, placement_id, status, target_agent_id"""


async def mark_terminated(connection: Connection, task_id: UUID) -> None:
    """Note with a locked task that the attempt under way is to end, and not the task."""
    await connection.exec_driver_sql(_MARK_TERMINATED, {"id": task_id})


async def unmark_terminated(connection: Connection, instances: Sequence[UUID]) -> None:
    """The tasks of these are to end after all."""
    # Instances have the times of their tasks.
    first, last = range_of(instances)
    await connection.exec_driver_sql(
        _UNMARK_TERMINATED, {"ids": list(instances), "first": first, "last": last}
    )


async def set_priority(connection: Connection, task_id: UUID, priority: int) -> tuple[int, int] | None:
    """Give a locked task a priority; return (namespace, class) of its instance if that can be claimed."""
    row = (
        await connection.exec_driver_sql(_SET_PRIORITY, {"id": task_id, "priority": priority})
    ).one_or_none()
    if row is None or row.status != "pending" or row.target_agent_id is not None:
        return None
    return row.namespace_id, row.placement_id
