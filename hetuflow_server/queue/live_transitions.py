"""What is changed about attempts that have not ended: their urgency, and that one is to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from hetuflow_core.ids import range_of
from hetuflow_server.postgres.connection import Connection

# Why an attempt was ended, which its task outlives if it may be tried again: by somebody, or by a taint of
# its agent, which is no fault of the work and counts as a loss.
TERMINATED = "terminated"
EVICTED = "evicted"

# Written before the attempt ends, so that whoever ends it knows why, however late that is.
_MARK = """
UPDATE sched_task SET reason = %(reason)s
WHERE id = ANY(%(ids)s::uuid[]) AND id BETWEEN %(first)s AND %(last)s
  AND status IN ('pending', 'waiting_retry')"""

_UNMARK = f"""
UPDATE sched_task SET reason = NULL
WHERE id = ANY(ARRAY(SELECT task_id FROM sched_task_instance WHERE id = ANY(%(ids)s::uuid[])))
  AND id BETWEEN %(first)s AND %(last)s AND reason IN ('{TERMINATED}', '{EVICTED}')
  AND status IN ('pending', 'waiting_retry')"""

_ON_AGENT = """
SELECT id, task_id, token, placement_id, status FROM sched_task_instance
WHERE agent_id = %(agent_id)s AND status IN ('reserved', 'running') AND NOT cancel_requested
ORDER BY id"""

_SET_PRIORITY = """
WITH task AS (
  UPDATE sched_task SET priority = %(priority)s
  WHERE id = %(id)s AND status IN ('pending', 'waiting_retry'))
UPDATE sched_task_instance SET priority = %(priority)s
WHERE task_id = %(id)s AND status IN ('held', 'pending')
RETURNING namespace_id, placement_id, status, target_agent_id"""


@dataclass(frozen=True, slots=True)
class OnAgent:
    """What an agent has and nobody has asked it to end."""

    id: UUID
    task_id: UUID
    token: UUID
    placement_id: int
    status: str


async def on_agent(connection: Connection, agent_id: UUID) -> list[OnAgent]:
    rows = await connection.execute(_ON_AGENT, {"agent_id": agent_id})
    return [OnAgent(*row) for row in rows]


async def mark_to_end(connection: Connection, tasks: Sequence[UUID], reason: str) -> None:
    """Note with locked tasks that the attempt under way is to end, and not the task."""
    first, last = range_of(tasks)
    await connection.execute(_MARK, {"ids": list(tasks), "first": first, "last": last, "reason": reason})


async def unmark(connection: Connection, instances: Sequence[UUID]) -> None:
    """The tasks of these are to end after all."""
    # Instances have the times of their tasks.
    first, last = range_of(instances)
    await connection.execute(_UNMARK, {"ids": list(instances), "first": first, "last": last})


async def set_priority(connection: Connection, task_id: UUID, priority: int) -> tuple[int, int] | None:
    """Give a locked task a priority; return (namespace, class) of its instance if that can be claimed."""
    row = (await connection.execute(_SET_PRIORITY, {"id": task_id, "priority": priority})).one_or_none()
    if row is None or row.status != "pending" or row.target_agent_id is not None:
        return None
    return row.namespace_id, row.placement_id
