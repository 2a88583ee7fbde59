"""What of flows is due: runs to begin, waits to end, runs out of time, errands left undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from hetuflow_server.postgres.connection import Connection

# One look at all of a server's namespaces; each question is one probe of an index.
_LOOK = """
SELECT n.id AS namespace_id, least(
  (SELECT i.due_at FROM sched_task_instance i
   WHERE i.namespace_id = n.id AND i.held_reason = 'flow' ORDER BY i.due_at LIMIT 1),
  (SELECT w.wake_at FROM sched_flow_node w
   WHERE w.namespace_id = n.id AND w.status = 'running' AND w.wake_at IS NOT NULL
   ORDER BY w.wake_at LIMIT 1),
  (SELECT w.started_at FROM sched_flow_node w
   WHERE w.namespace_id = n.id AND w.status = 'running' AND w.event_name IS NOT NULL LIMIT 1),
  (SELECT r.deadline_at FROM sched_flow_run r
   WHERE r.namespace_id = n.id AND r.finished_at IS NULL AND r.ending IS NULL AND r.deadline_at IS NOT NULL
   ORDER BY r.deadline_at LIMIT 1),
  (SELECT a.requested_at + %(left_undone)s FROM sched_flow_advance a
   WHERE a.namespace_id = n.id ORDER BY a.requested_at LIMIT 1)) - clock_timestamp() AS due_in
FROM unnest(%(namespaces)s::integer[]) AS n(id)"""


@dataclass(frozen=True, slots=True)
class DueNamespace:
    namespace_id: int
    # When the first thing is due from now; None: nothing is.
    due_in: timedelta | None

    @property
    def is_due(self) -> bool:
        return self.due_in is not None and self.due_in <= timedelta(0)


async def due_in(
    connection: Connection, namespaces: Sequence[int], *, ahead: timedelta, left_undone: timedelta
) -> list[DueNamespace]:
    """Return namespaces in which something is due within `ahead`."""
    rows = await connection.execute(_LOOK, {"namespaces": list(namespaces), "left_undone": left_undone})
    return [DueNamespace(*row) for row in rows if row.due_in is not None and row.due_in <= ahead]


_DUE_FLOWS = """
SELECT task_id FROM sched_task_instance
WHERE namespace_id = %(namespace_id)s AND held_reason = 'flow' AND due_at <= clock_timestamp()
ORDER BY due_at, id LIMIT %(most)s"""

_DUE_WAITS = """
SELECT flow_run_id, node, reason FROM sched_flow_node
WHERE namespace_id = %(namespace_id)s AND status = 'running' AND wake_at IS NOT NULL
  AND wake_at <= clock_timestamp()
ORDER BY wake_at LIMIT %(most)s"""

_OVERDUE = """
SELECT id FROM sched_flow_run
WHERE namespace_id = %(namespace_id)s AND finished_at IS NULL AND ending IS NULL AND deadline_at IS NOT NULL
  AND deadline_at <= clock_timestamp()
ORDER BY id LIMIT %(most)s FOR UPDATE SKIP LOCKED"""

_LEFT = """
SELECT flow_run_id FROM sched_flow_advance
WHERE namespace_id = %(namespace_id)s AND requested_at <= clock_timestamp() - %(age)s
ORDER BY requested_at LIMIT %(most)s"""


async def due_flows(connection: Connection, namespace_id: int, most: int) -> list[UUID]:
    """Return tasks of flows whose run is to begin."""
    rows = await connection.execute(_DUE_FLOWS, {"namespace_id": namespace_id, "most": most})
    return list(rows.scalars())


async def due_waits(
    connection: Connection, namespace_id: int, most: int
) -> list[tuple[UUID, str, str | None]]:
    """Return (run, node, why it waits) of waits that are over."""
    rows = await connection.execute(_DUE_WAITS, {"namespace_id": namespace_id, "most": most})
    return [(row.flow_run_id, row.node, row.reason) for row in rows]


async def is_due(connection: Connection, run: UUID, node: str) -> bool:
    row = await connection.execute(
        "SELECT EXISTS (SELECT FROM sched_flow_node WHERE flow_run_id = %(run)s AND node = %(node)s "
        "AND status = 'running' AND wake_at <= clock_timestamp())",
        {"run": run, "node": node},
    )
    return bool(row.scalar_one())


async def overdue_runs(connection: Connection, namespace_id: int, most: int) -> list[UUID]:
    """Lock runs that took longer than they may."""
    rows = await connection.execute(_OVERDUE, {"namespace_id": namespace_id, "most": most})
    return list(rows.scalars())


async def left_undone(connection: Connection, namespace_id: int, age: timedelta, most: int) -> list[UUID]:
    """Return runs that somebody was to go on with for so long."""
    rows = await connection.execute(_LEFT, {"namespace_id": namespace_id, "age": age, "most": most})
    return list(rows.scalars())
