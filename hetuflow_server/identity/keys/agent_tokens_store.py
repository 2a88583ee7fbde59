"""Tokens of agents as rows that are listed and revoked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core.resources.identity import AgentToken
from hetuflow_server.identity.access_store import AgentTokenRow
from hetuflow_server.identity.keys.api_keys_store import STATE
from hetuflow_server.postgres.connection import Connection

_SHOWN = f"""
SELECT t.id, t.prefix, t.name, {STATE.format("t")} AS state, t.created_at, t.created_by, t.expires_at,
       t.revoked_at,
       coalesce((SELECT array_agg(n.name ORDER BY n.name) FROM sched_agent_token_namespace m
                 JOIN sched_namespace n ON n.id = m.namespace_id
                 WHERE m.token_id = t.id), '{{}}') AS namespaces,
       (SELECT count(*) FROM sched_agent a WHERE a.token_id = t.id) AS agents,
       (SELECT max(a.last_seen_at) FROM sched_agent a WHERE a.token_id = t.id) AS last_used_at
FROM sched_agent_token t"""

_LIST = f"{_SHOWN} WHERE (%(before)s::uuid IS NULL OR t.id < %(before)s) ORDER BY t.id DESC LIMIT %(limit)s"

_INSERT = """
INSERT INTO sched_agent_token (id, prefix, digest, name, expires_at, created_by)
VALUES (%(id)s, %(prefix)s, %(digest)s, %(name)s, %(expires_at)s, %(created_by)s)"""

_ADD_NAMESPACES = """
INSERT INTO sched_agent_token_namespace (token_id, namespace_id)
SELECT %(id)s, namespace_id FROM unnest(%(namespaces)s::integer[]) AS namespace_id"""

_REVOKE = """
UPDATE sched_agent_token SET revoked_at = coalesce(revoked_at, clock_timestamp())
WHERE id = %(id)s RETURNING id"""


# Its digest is of nothing that exists: only the verifier can vouch for it.
_ENSURE_REMOTE = """
INSERT INTO sched_agent_token (id, prefix, digest, name, created_by)
VALUES (%(id)s, %(prefix)s, sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')),
        %(name)s, %(verifier)s)
ON CONFLICT (prefix) DO UPDATE SET name = excluded.name
RETURNING id, revoked_at IS NULL AS good"""

_SET_NAMESPACES = """
WITH wanted AS (SELECT id, name FROM sched_namespace WHERE name = ANY(%(names)s::text[])),
     gone AS (DELETE FROM sched_agent_token_namespace
              WHERE token_id = %(id)s AND namespace_id NOT IN (SELECT id FROM wanted)),
     added AS (INSERT INTO sched_agent_token_namespace (token_id, namespace_id)
               SELECT %(id)s, id FROM wanted ON CONFLICT DO NOTHING)
SELECT name, id FROM wanted ORDER BY name"""


@dataclass(frozen=True, slots=True)
class RemoteToken:
    """What a verifier says of an agent, as a row among the tokens."""

    prefix: str
    verifier: str
    name: str
    namespaces: Sequence[str]


async def ensure_remote(connection: Connection, id_: UUID, said: RemoteToken) -> AgentTokenRow | None:
    """Return the row of an agent that a verifier vouches for, made if it is new; None once it was revoked."""
    row = (
        await connection.execute(
            _ENSURE_REMOTE,
            {"id": id_, "prefix": said.prefix, "name": said.name, "verifier": said.verifier},
        )
    ).one()
    if not row.good:
        return None
    found = await connection.execute(_SET_NAMESPACES, {"id": row.id, "names": list(said.namespaces)})
    return AgentTokenRow(row.id, b"", {one.name: one.id for one in found})


async def insert(
    connection: Connection,
    *,
    id_: UUID,
    prefix: str,
    digest: bytes,
    name: str,
    namespace_ids: Sequence[int],
    expires_at: datetime | None,
    created_by: str | None,
) -> None:
    await connection.execute(
        _INSERT,
        {
            "id": id_,
            "prefix": prefix,
            "digest": digest,
            "name": name,
            "expires_at": expires_at,
            "created_by": created_by,
        },
    )
    await connection.execute(_ADD_NAMESPACES, {"id": id_, "namespaces": list(namespace_ids)})


async def listed(connection: Connection, *, before: UUID | None, limit: int) -> list[AgentToken]:
    """Return tokens, newest first."""
    rows = await connection.execute(_LIST, {"before": before, "limit": limit})
    return [_shown(row) for row in rows]


async def count(connection: Connection, cap: int) -> int:
    row = await connection.execute(
        "SELECT count(*) FROM (SELECT FROM sched_agent_token LIMIT %(cap)s) counted", {"cap": cap}
    )
    return int(row.scalar_one())


async def by_id(connection: Connection, id_: UUID) -> AgentToken | None:
    row = (await connection.execute(f"{_SHOWN} WHERE t.id = %(id)s", {"id": id_})).one_or_none()
    return _shown(row) if row else None


async def revoke(connection: Connection, id_: UUID) -> bool:
    return (await connection.execute(_REVOKE, {"id": id_})).first() is not None


def _shown(row: Any) -> AgentToken:
    return AgentToken(**row.as_dict())
