"""Daemons as people see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core.ids import range_of
from hetuflow_core.resources.daemons import DaemonRun
from hetuflow_server.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class ShownSlot:
    schedule_id: UUID
    slot: int
    incarnation: int
    restarts: int
    crashes: int
    rests: bool
    ready_since: datetime | None
    last_status: str | None
    last_reason: str | None
    last_exit_code: int | None
    last_ended_at: datetime | None
    agent: str | None
    # Of its live instance.
    task_id: UUID | None
    instance_id: UUID | None
    status: str | None
    job_version: int | None
    due_at: datetime | None
    started_at: datetime | None
    cancel_requested: bool | None


_SLOTS = """
SELECT d.schedule_id, d.slot, d.incarnation, d.restarts, d.crashes, d.rests, d.ready_since, d.last_status,
       d.last_reason, d.last_exit_code, d.last_ended_at, a.name AS agent, i.task_id, i.id AS instance_id,
       i.status, i.job_version, i.due_at, i.started_at, i.cancel_requested
FROM sched_daemon_slot d
LEFT JOIN sched_task_instance i ON i.schedule_id = d.schedule_id AND i.slot = d.slot
LEFT JOIN sched_agent a ON a.id = coalesce(i.agent_id, i.target_agent_id, d.agent_id)
WHERE d.schedule_id = ANY(%(ids)s::uuid[]) AND (NOT d.retired OR i.id IS NOT NULL)
ORDER BY d.schedule_id, d.slot"""

_VERSIONS = "SELECT id, version FROM sched_job WHERE id = ANY(%(ids)s::uuid[])"

_TASKS = """
SELECT id FROM sched_task
WHERE schedule_id = %(schedule_id)s AND (%(before)s::uuid IS NULL OR id < %(before)s)
ORDER BY id DESC LIMIT %(limit)s"""

# An instance has the time of its task: the range leaves out the partitions that cannot hold them.
_RUNS = """
SELECT i.task_id, i.id AS instance_id, i.slot, i.attempt AS start, i.job_version, a.name AS agent, i.status,
       coalesce(t.reason, i.reason) AS reason, i.message, i.exit_code, i.signal, i.due_at, i.started_at,
       i.finished_at
FROM sched_task_instance_all i
JOIN sched_task t ON t.id = i.task_id AND t.id BETWEEN %(first)s AND %(last)s
LEFT JOIN sched_agent a ON a.id = i.agent_id
WHERE i.task_id = ANY(%(tasks)s::uuid[]) AND i.id BETWEEN %(first)s AND %(last)s AND i.slot IS NOT NULL
ORDER BY i.task_id DESC"""


async def slots(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, list[ShownSlot]]:
    """Return {daemon: its slots}, without those nobody wants any more."""
    found: dict[UUID, list[ShownSlot]] = {id_: [] for id_ in ids}
    for row in await connection.execute(_SLOTS, {"ids": list(ids)}):
        found[row[0]].append(ShownSlot(*row))
    return found


async def job_versions(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, int]:
    rows = await connection.execute(_VERSIONS, {"ids": list(ids)})
    return {row.id: row.version for row in rows}


async def namespace_of(connection: Connection, schedule_id: UUID) -> int | None:
    row = await connection.execute(
        "SELECT namespace_id FROM sched_schedule WHERE id = %(id)s", {"id": schedule_id}
    )
    namespace_id: int | None = row.scalar_one_or_none()
    return namespace_id


async def history(
    connection: Connection, schedule_id: UUID, *, before: UUID | None, limit: int
) -> list[DaemonRun]:
    """Return instances of a daemon, newest first, of tasks before that one."""
    parameters: dict[str, Any] = {"schedule_id": schedule_id, "before": before, "limit": limit}
    tasks = list((await connection.execute(_TASKS, parameters)).scalars())
    if not tasks:
        return []
    first, last = range_of(tasks)
    rows = await connection.execute(_RUNS, {"tasks": tasks, "first": first, "last": last})
    return [DaemonRun(**row.as_dict()) for row in rows]
