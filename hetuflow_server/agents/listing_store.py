"""Agents as people see and decide about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.resources.agents import Agent, AgentDetail, HeldInstance
from hetuflow_core.states import AgentStatus
from hetuflow_server.agents.store import REACHABLE, AgentCapabilities
from hetuflow_server.postgres.connection import Connection

_MOST_INSTANCES = 500

_COLUMNS = f"""a.id, a.name, a.status, a.slots, a.labels, a.capabilities, a.version, a.last_seen_at,
       a.host_usage, a.created_at, a.registered_at, a.session_id IS NOT NULL AS has_session,
       a.session_id IS NOT NULL AND {REACHABLE} AS reachable,
       (SELECT count(*) FROM sched_task_instance i WHERE i.agent_id = a.id) AS in_use"""

_WHERE = """
FROM sched_agent a
WHERE (%(name)s::text IS NULL OR a.name = %(name)s) AND (%(status)s::text IS NULL OR a.status = %(status)s)
  AND a.labels @> %(labels)s::jsonb AND (%(after)s::text IS NULL OR a.name > %(after)s)
  AND (%(namespaces)s::text[] IS NULL OR a.capabilities->'namespaces' ?| %(namespaces)s)"""

_LIST = f"SELECT {_COLUMNS} {_WHERE} ORDER BY a.name LIMIT %(limit)s"
_COUNT = f"SELECT count(*) FROM (SELECT 1 {_WHERE} LIMIT %(cap)s) counted"
_GET = f"SELECT {_COLUMNS} FROM sched_agent a WHERE a.id = %(id)s"

_HELD = """
SELECT i.id, i.task_id, n.name AS namespace, j.name AS job, i.status, i.due_at, i.started_at
FROM sched_task_instance i JOIN sched_namespace n ON n.id = i.namespace_id JOIN sched_job j ON j.id = i.job_id
WHERE i.agent_id = %(id)s AND (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s))
ORDER BY i.id LIMIT %(most)s"""

_LOCK = "SELECT status, session_id FROM sched_agent WHERE id = %(id)s FOR UPDATE"

_SET_STATUS = "UPDATE sched_agent SET status = %(status)s WHERE id = %(id)s"

_END_SESSION = """
UPDATE sched_agent SET session_id = NULL, status = CASE status WHEN 'online' THEN 'offline' ELSE status END
WHERE id = %(id)s"""


@dataclass(frozen=True, slots=True)
class AgentFilter:
    name: str | None = None
    status: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    # The name of the last agent of the page before.
    after: str | None = None
    # Those that serve one of these; None: all.
    namespaces: Sequence[str] | None = None

    def parameters(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "labels": msgspec.json.encode(self.labels).decode(),
            "after": self.after,
            "namespaces": self.namespaces,
        }


@dataclass(frozen=True, slots=True)
class LockedAgent:
    status: AgentStatus
    # None once it was kicked.
    session_id: UUID | None


async def list_agents(connection: Connection, wanted: AgentFilter, limit: int) -> list[Agent]:
    rows = await connection.execute(_LIST, {**wanted.parameters(), "limit": limit})
    return [Agent(**_fields(row.as_dict())) for row in rows]


async def count_agents(connection: Connection, wanted: AgentFilter, cap: int) -> int:
    row = await connection.execute(_COUNT, {**wanted.parameters(), "cap": cap})
    return int(row.scalar_one())


async def detail(
    connection: Connection, id_: UUID, *, namespaces: Sequence[str] | None
) -> AgentDetail | None:
    """Return an agent with what it holds, of those namespaces the reader may see."""
    row = (await connection.execute(_GET, {"id": id_})).one_or_none()
    if row is None:
        return None
    fields = _fields(row.as_dict())
    held = await connection.execute(_HELD, {"id": id_, "namespaces": namespaces, "most": _MOST_INSTANCES})
    instances = [HeldInstance(**one.as_dict()) for one in held]
    return AgentDetail(**fields, instances=instances)


async def lock(connection: Connection, id_: UUID) -> LockedAgent | None:
    """Hold an agent's row, so that what is decided about it is decided one after the other."""
    row = (await connection.execute(_LOCK, {"id": id_})).one_or_none()
    return None if row is None else LockedAgent(AgentStatus(row.status), row.session_id)


async def set_status(connection: Connection, id_: UUID, status: AgentStatus) -> None:
    await connection.execute(_SET_STATUS, {"id": id_, "status": status.value})


async def end_session(connection: Connection, id_: UUID) -> None:
    """Leave a locked agent without a session; what was decided about it otherwise stays."""
    await connection.execute(_END_SESSION, {"id": id_})


async def holds_work(connection: Connection, id_: UUID) -> bool:
    row = await connection.execute(
        "SELECT EXISTS (SELECT FROM sched_task_instance WHERE agent_id = %(id)s)", {"id": id_}
    )
    return bool(row.scalar_one())


async def running_instances(connection: Connection, id_: UUID, most: int) -> list[UUID]:
    rows = await connection.execute(
        "SELECT id FROM sched_task_instance WHERE agent_id = %(id)s AND status = 'running' "
        "ORDER BY id LIMIT %(most)s",
        {"id": id_, "most": most},
    )
    return list(rows.scalars())


async def namespace_ids(connection: Connection, names: Sequence[str]) -> list[int]:
    rows = await connection.execute(
        "SELECT id FROM sched_namespace WHERE name = ANY(%(names)s)", {"names": list(names)}
    )
    return list(rows.scalars())


async def delete(connection: Connection, id_: UUID) -> None:
    await connection.execute("DELETE FROM sched_agent WHERE id = %(id)s", {"id": id_})


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = dict(row)
    said = msgspec.convert(fields.pop("capabilities"), AgentCapabilities)
    return fields | {
        "namespaces": said.namespaces,
        "taints": said.taints,
        "pools": said.pools,
        "executors": said.executors,
        "run_as": said.run_as,
        "resources": msgspec.structs.asdict(said.resources),
        "limit_means": None if said.limit_means is None else msgspec.structs.asdict(said.limit_means),
    }
