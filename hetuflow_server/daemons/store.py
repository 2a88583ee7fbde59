"""Reading daemons: their schedules, slots, what lives in them, and the agents they could be on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from hetuflow_core.ids import range_of
from hetuflow_core.states import InstanceStatus
from hetuflow_server.agents.store import AgentCapabilities, AgentSession
from hetuflow_server.postgres.database import Connection

# A poll waits for half a minute; who was not heard of for longer is not there.
_REACHABLE: Final = "a.last_seen_at > clock_timestamp() - interval '45 seconds'"


@dataclass(frozen=True, slots=True)
class DaemonRow:
    """A schedule that is a daemon, or was one and has slots to let go of."""

    id: UUID
    namespace_id: int
    namespace: str
    job_id: UUID
    # It, and its job, is there and enabled, and it is a daemon.
    wanted: bool
    # JSON, without its name.
    spec: str
    job_version: int
    placement_id: int


@dataclass(frozen=True, slots=True)
class SlotRow:
    schedule_id: UUID
    slot: int
    agent_id: UUID | None
    incarnation: int
    template: str | None
    ready: bool
    crashes: int
    not_before: datetime | None
    rests: bool
    replace: bool
    retired: bool
    # Of its live instance.
    instance_id: UUID | None
    status: str | None
    due_at: datetime | None
    held_by: UUID | None
    target_agent_id: UUID | None
    cancel_requested: bool | None


@dataclass(frozen=True, slots=True)
class AgentRow:
    id: UUID
    status: str
    has_session: bool
    reachable: bool
    # Another registration is another agent, as far as what it can do is concerned.
    registered_at: datetime


@dataclass(frozen=True, slots=True)
class EndedInstance:
    instance_id: UUID
    schedule_id: UUID
    slot: int
    status: InstanceStatus
    reason: str | None
    exit_code: int | None
    ran_for: timedelta
    finished_at: datetime


_DAEMONS = """
SELECT s.id, s.namespace_id, n.name AS namespace, s.job_id,
       s.kind = 'daemon' AND s.enabled AND s.deleted_at IS NULL AND j.enabled AND j.deleted_at IS NULL
         AS wanted,
       (s.spec - 'name')::text AS spec, j.version AS job_version, v.placement_id
FROM sched_schedule s
JOIN sched_job j ON j.id = s.job_id
JOIN sched_job_version v ON v.job_id = j.id AND v.version = j.version
JOIN sched_namespace n ON n.id = s.namespace_id
WHERE {which}
ORDER BY s.id"""
_IN_NAMESPACES = _DAEMONS.format(
    which="""s.id IN (
  SELECT id FROM sched_schedule
  WHERE namespace_id = ANY(%(namespaces)s::integer[]) AND kind = 'daemon' AND deleted_at IS NULL
  UNION
  SELECT schedule_id FROM sched_daemon_slot
  WHERE namespace_id = ANY(%(namespaces)s::integer[]) AND NOT retired)"""
)
# Whoever edits one holds its row: it is left to the loop, which comes when the edit is done.
_LOCKED = _DAEMONS.format(which="s.id = ANY(%(ids)s::uuid[])") + " FOR SHARE OF s SKIP LOCKED"

_BY_ID = _DAEMONS.format(which="s.id = ANY(%(ids)s::uuid[])")

_SLOTS = """
SELECT d.schedule_id, d.slot, d.agent_id, d.incarnation, d.template, d.ready_since IS NOT NULL AS ready,
       d.crashes, d.not_before, d.rests, d.replace, d.retired, i.id AS instance_id, i.status, i.due_at,
       i.agent_id AS held_by, i.target_agent_id, i.cancel_requested
FROM sched_daemon_slot d
LEFT JOIN sched_task_instance i ON i.schedule_id = d.schedule_id AND i.slot = d.slot
WHERE d.schedule_id = ANY(%(ids)s::uuid[])
ORDER BY d.schedule_id, d.slot"""

_AGENTS = f"""
SELECT a.id, a.status, a.session_id IS NOT NULL AS has_session, coalesce({_REACHABLE}, false) AS reachable,
       a.registered_at
FROM sched_agent a WHERE a.registered_at IS NOT NULL"""

_SESSIONS = """
SELECT id, name, status, slots, labels, capabilities, registered_at FROM sched_agent
WHERE id = ANY(%(ids)s::uuid[])"""

_LOADS = """
SELECT agent_id, count(*) AS load FROM sched_task_instance
WHERE agent_id = ANY(%(ids)s::uuid[]) GROUP BY agent_id"""

_ENDED = """
SELECT i.id, i.schedule_id, i.slot, i.status, coalesce(i.reason, t.reason) AS reason, i.exit_code,
       CASE WHEN i.started_at IS NULL THEN interval '0'
            ELSE greatest(i.finished_at - i.started_at, interval '0') END AS ran_for, i.finished_at
FROM sched_task_instance_history i
LEFT JOIN sched_task t ON t.id = i.task_id AND t.id BETWEEN %(first)s AND %(last)s
WHERE i.id = ANY(%(ids)s::uuid[]) AND i.id BETWEEN %(first)s AND %(last)s
ORDER BY i.schedule_id, i.slot"""


async def specs_of(connection: Connection, instances: Sequence[UUID]) -> dict[UUID, str]:
    """Return {instance: its schedule as JSON, without its name}."""
    rows = await connection.execute(
        "SELECT i.id, (s.spec - 'name')::text FROM sched_task_instance i "
        "JOIN sched_schedule s ON s.id = i.schedule_id WHERE i.id = ANY(%(ids)s::uuid[])",
        {"ids": list(instances)},
    )
    return {row[0]: row[1] for row in rows}


async def in_namespaces(connection: Connection, namespaces: Sequence[int]) -> list[DaemonRow]:
    """Return the daemons of these namespaces, and what else has slots to let go of."""
    rows = await connection.execute(_IN_NAMESPACES, {"namespaces": list(namespaces)})
    return [DaemonRow(*row) for row in rows]


async def by_id(connection: Connection, ids: Sequence[UUID]) -> list[DaemonRow]:
    rows = await connection.execute(_BY_ID, {"ids": list(ids)})
    return [DaemonRow(*row) for row in rows]


async def lock_free(connection: Connection, ids: Sequence[UUID]) -> list[DaemonRow]:
    """Return those of these daemons that nobody edits, and keep it so until the commit."""
    rows = await connection.execute(_LOCKED, {"ids": list(ids)})
    return [DaemonRow(*row) for row in rows]


async def slots(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, list[SlotRow]]:
    rows = await connection.execute(_SLOTS, {"ids": list(ids)})
    found: dict[UUID, list[SlotRow]] = {id_: [] for id_ in ids}
    for row in rows:
        found[row[0]].append(SlotRow(*row))
    return found


async def agents(connection: Connection) -> list[AgentRow]:
    return [AgentRow(*row) for row in await connection.execute(_AGENTS)]


async def sessions(connection: Connection, ids: Sequence[UUID]) -> list[AgentSession]:
    """Return what these agents said of themselves when they registered."""
    rows = await connection.execute(_SESSIONS, {"ids": list(ids)})
    return [
        AgentSession(
            row.id,
            row.name,
            row.status,
            row.slots,
            row.labels,
            msgspec.convert(row.capabilities, AgentCapabilities),
            row.registered_at,
        )
        for row in rows
    ]


async def loads(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, int]:
    """Return {agent: how many instances it has}."""
    rows: Any = await connection.execute(_LOADS, {"ids": list(ids)})
    return {row.agent_id: row.load for row in rows}


async def ended(connection: Connection, ids: Sequence[UUID]) -> list[EndedInstance]:
    """Return how instances of daemons ended that are in the history, in the order of their slots."""
    first, last = range_of(ids)
    rows = await connection.execute(_ENDED, {"ids": list(ids), "first": first, "last": last})
    return [
        EndedInstance(
            row.id,
            row.schedule_id,
            row.slot,
            InstanceStatus(row.status),
            row.reason,
            row.exit_code,
            row.ran_for,
            row.finished_at,
        )
        for row in rows
    ]
