"""Agents and their sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from hetuflow_core.errors import Conflict
from hetuflow_core.resources import AgentSummary

# Another session of the agent takes its place; only the token the name belongs to may do that.
_REGISTER = """
INSERT INTO sched_agent AS a (id, name, status, session_id, labels, capabilities, slots, version,
                              registered_at, last_seen_at, token_id)
VALUES (%(id)s, %(name)s, 'online', %(session_id)s, %(labels)s::jsonb, %(capabilities)s::jsonb, %(slots)s,
        %(version)s, clock_timestamp(), clock_timestamp(), %(token_id)s)
ON CONFLICT (name) DO UPDATE
SET session_id = excluded.session_id, labels = excluded.labels, capabilities = excluded.capabilities,
    slots = excluded.slots, version = excluded.version, registered_at = excluded.registered_at,
    last_seen_at = excluded.last_seen_at, token_id = excluded.token_id,
    status = CASE a.status WHEN 'offline' THEN 'online' ELSE a.status END
WHERE a.token_id IS NULL OR a.token_id = excluded.token_id
RETURNING a.id"""

_SESSION = """
SELECT id, name, status, slots, labels, capabilities, registered_at FROM sched_agent
WHERE session_id = %(session_id)s AND token_id = %(token_id)s"""

_SEEN = "UPDATE sched_agent SET last_seen_at = clock_timestamp() WHERE id = ANY(%(ids)s::uuid[])"

_SUMMARIES = """
SELECT a.id, a.name, a.status, a.slots, a.labels, a.version, a.last_seen_at,
       coalesce(a.last_seen_at > clock_timestamp() - interval '45 seconds', false) AS reachable,
       (SELECT count(*) FROM sched_task_instance i WHERE i.agent_id = a.id) AS in_use
FROM sched_agent a ORDER BY a.name LIMIT %(most)s"""


class AgentCapabilities(msgspec.Struct, frozen=True):
    """What an agent said of itself when it registered, beside its labels."""

    executors: list[str] = []
    # Those it asked to serve, of those its token allows.
    namespaces: list[str] = []
    taints: list[str] = []
    pools: list[str] = []


@dataclass(frozen=True, slots=True)
class AgentSession:
    id: UUID
    name: str
    status: str
    slots: int
    labels: dict[str, str]
    capabilities: AgentCapabilities
    registered_at: datetime


async def register(
    connection: AsyncConnection,
    *,
    id_: UUID,
    name: str,
    session_id: UUID,
    token_id: UUID,
    labels: Mapping[str, str],
    capabilities: AgentCapabilities,
    slots: int,
    version: str,
) -> UUID:
    """Make this session the agent's; return the agent's id, which stays the same for its name."""
    row = await connection.exec_driver_sql(
        _REGISTER,
        {
            "id": id_,
            "name": name,
            "session_id": session_id,
            "token_id": token_id,
            "labels": msgspec.json.encode(labels).decode(),
            "capabilities": msgspec.json.encode(capabilities).decode(),
            "slots": slots,
            "version": version,
        },
    )
    agent_id: UUID | None = row.scalar_one_or_none()
    if agent_id is None:
        raise Conflict(
            f"The name {name} belongs to an agent with another token: give this one another name.",
            code="agent.name_taken",
        )
    return agent_id


async def session(connection: AsyncConnection, session_id: UUID, token_id: UUID) -> AgentSession:
    row = (
        await connection.exec_driver_sql(_SESSION, {"session_id": session_id, "token_id": token_id})
    ).one_or_none()
    if row is None:
        raise Conflict(
            "Another session of this agent has taken its place, or it never registered.",
            code="agent.session_replaced",
        )
    return AgentSession(
        row.id,
        row.name,
        row.status,
        row.slots,
        row.labels,
        msgspec.convert(row.capabilities, AgentCapabilities),
        row.registered_at,
    )


async def seen(connection: AsyncConnection, ids: Sequence[UUID]) -> None:
    """Note that these agents were heard of, all in one statement."""
    await connection.exec_driver_sql(_SEEN, {"ids": list(ids)})


async def summaries(connection: AsyncConnection, most: int) -> list[AgentSummary]:
    rows = await connection.exec_driver_sql(_SUMMARIES, {"most": most})
    return [AgentSummary(**row._mapping) for row in rows]  # noqa: SLF001 - SQLAlchemy's public name
