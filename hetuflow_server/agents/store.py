"""Agents and their sessions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from hetuflow_core import ids
from hetuflow_core.errors import Conflict
from hetuflow_core.messages import LimitMeans
from hetuflow_core.placement import AgentFacts, Resources, parse_taint
from hetuflow_core.resources.agents import AgentSummary
from hetuflow_core.states import AgentStatus
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.sql_fragments import by_key

# Whether an agent `a` was heard of within its last heartbeats.
REACHABLE = "coalesce(a.last_seen_at > clock_timestamp() - interval '45 seconds', false)"

# Another session of the agent takes its place; only the token the name belongs to may do that.
_REGISTER = """
INSERT INTO sched_agent AS a (id, name, status, session_id, labels, capabilities, slots, version,
                              registered_at, last_seen_at, token_id)
VALUES (%(id)s, %(name)s, %(status)s, %(session_id)s, %(labels)s::jsonb, %(capabilities)s::jsonb, %(slots)s,
        %(version)s, clock_timestamp(), clock_timestamp(), %(token_id)s)
ON CONFLICT (name) DO UPDATE
SET session_id = excluded.session_id, labels = excluded.labels, capabilities = excluded.capabilities,
    slots = excluded.slots, version = excluded.version, registered_at = excluded.registered_at,
    last_seen_at = excluded.last_seen_at, token_id = excluded.token_id,
    status = CASE a.status WHEN 'offline' THEN 'online' ELSE a.status END
WHERE a.token_id IS NULL OR a.token_id = excluded.token_id
RETURNING a.id, a.status"""

_SESSIONS = """
SELECT session_id, token_id, id, name, status, slots, labels, capabilities, registered_at FROM sched_agent
WHERE session_id = ANY(%(sessions)s::uuid[])"""

# One after the other, in the order they are named in: servers that have heard of the same agents meet here.
_SEEN = f"""
UPDATE sched_agent a SET last_seen_at = clock_timestamp()
FROM unnest(%(ids)s::uuid[]) AS h(id) WHERE {by_key("a.id", "h.id")}"""
_NOTE_HOSTS = f"""
UPDATE sched_agent a SET host_usage = h.usage::jsonb
FROM unnest(%(ids)s::uuid[], %(usage)s::text[]) AS h(id, usage) WHERE {by_key("a.id", "h.id")}"""

_SUMMARIES = f"""
SELECT a.id, a.name, a.status, a.slots, a.labels, a.version, a.last_seen_at, a.host_usage,
       {REACHABLE} AS reachable,
       (SELECT count(*) FROM sched_task_instance i WHERE i.agent_id = a.id) AS in_use
FROM sched_agent a
WHERE %(namespaces)s::text[] IS NULL OR a.capabilities->'namespaces' ?| %(namespaces)s
ORDER BY a.name LIMIT %(most)s"""


class AgentCapabilities(msgspec.Struct, frozen=True):
    """What an agent said of itself when it registered, beside its labels."""

    executors: list[str] = []
    run_as: list[str] = []
    # Those it asked to serve, of those its token allows.
    namespaces: list[str] = []
    taints: list[str] = []
    pools: list[str] = []
    resources: Resources = Resources()
    limit_means: LimitMeans | None = None


@dataclass(frozen=True, slots=True)
class AgentSession:
    id: UUID
    name: str
    status: str
    slots: int
    labels: dict[str, str]
    capabilities: AgentCapabilities
    registered_at: datetime

    @property
    def facts(self) -> AgentFacts:
        """The facts that placement judges; each registration makes another version of them."""
        capabilities = self.capabilities
        return AgentFacts(
            agent_id=self.id,
            version=ids.milliseconds(self.registered_at),
            labels=self.labels,
            taints=tuple(map(parse_taint, capabilities.taints)),
            pools=frozenset(capabilities.pools),
            capacity=capabilities.resources,
            slots=self.slots,
            executors=frozenset(capabilities.executors),
            run_as=frozenset(capabilities.run_as),
        )


async def register(
    connection: Connection,
    *,
    id_: UUID,
    name: str,
    session_id: UUID,
    token_id: UUID,
    labels: Mapping[str, str],
    capabilities: AgentCapabilities,
    slots: int,
    version: str,
    newcomer: AgentStatus,
) -> tuple[UUID, AgentStatus]:
    """Make this session the agent's; return the agent's id, which stays the same for its name, and status.

    `newcomer` is what an agent nobody has heard of becomes.
    """
    rows = await connection.execute(
        _REGISTER,
        {
            "id": id_,
            "name": name,
            "status": newcomer.value,
            "session_id": session_id,
            "token_id": token_id,
            "labels": msgspec.json.encode(labels).decode(),
            "capabilities": msgspec.json.encode(capabilities).decode(),
            "slots": slots,
            "version": version,
        },
    )
    row = rows.one_or_none()
    if row is None:
        raise Conflict(
            f"The name {name} belongs to an agent with another token: give this one another name.",
            code="agent.name_taken",
        )
    return row.id, AgentStatus(row.status)


async def sessions(
    connection: Connection, wanted: Collection[UUID]
) -> dict[tuple[UUID, UUID | None], AgentSession]:
    """Return {(session, its token): the agent it is of} for those of these sessions that are current."""
    rows = await connection.execute(_SESSIONS, {"sessions": list(wanted)})
    return {
        (row.session_id, row.token_id): AgentSession(
            row.id,
            row.name,
            row.status,
            row.slots,
            row.labels,
            msgspec.convert(row.capabilities, AgentCapabilities),
            row.registered_at,
        )
        for row in rows
    }


_SERVING = """
SELECT id, name, status, slots, labels, capabilities, registered_at FROM sched_agent
WHERE status = 'online' AND session_id IS NOT NULL AND capabilities->'namespaces' ? %(namespace)s
ORDER BY name"""


async def serving(connection: Connection, namespace: str) -> list[AgentSession]:
    """Return the agents that serve a namespace and take work."""
    rows = await connection.execute(_SERVING, {"namespace": namespace})
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


async def seen(connection: Connection, ids: Iterable[UUID]) -> None:
    """Note that these agents were heard of, all in one statement."""
    await connection.execute(_SEEN, {"ids": sorted(ids)})


async def note_hosts(connection: Connection, hosts: Sequence[tuple[UUID, str]]) -> None:
    """Write down how busy the hosts of agents are: (agent, JSON)."""
    ids, usage = zip(*sorted(hosts), strict=True)
    await connection.execute(_NOTE_HOSTS, {"ids": list(ids), "usage": list(usage)})


async def summaries(
    connection: Connection, most: int, namespaces: Sequence[str] | None
) -> list[AgentSummary]:
    rows = await connection.execute(_SUMMARIES, {"most": most, "namespaces": namespaces})
    return [AgentSummary(**row.as_dict()) for row in rows]


async def targets(connection: Connection, names: Sequence[str]) -> dict[str, tuple[UUID, list[str]]]:
    """Return {name: (agent, the namespaces it serves)} for work that is to be bound to these agents."""
    rows = await connection.execute(
        "SELECT name, id, capabilities FROM sched_agent WHERE name = ANY(%(names)s::text[])",
        {"names": list(names)},
    )
    return {
        row.name: (row.id, msgspec.convert(row.capabilities, AgentCapabilities).namespaces) for row in rows
    }
