"""What is asked of the database when somebody shows a credential."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from hetuflow_core.access.roles import Role
from hetuflow_core.errors import NotFound
from hetuflow_core.resources.identity import UserGrant
from hetuflow_server.identity.users.store import GRANTS
from hetuflow_server.postgres.connection import Connection

# A key is good as long as its owner is.
_VALID_KEY = f"""
SELECT k.id, k.digest, k.name, k.role, n.name AS namespace, k.scopes, k.requests_per_second, k.owner_id,
       CASE WHEN u.id IS NOT NULL THEN {GRANTS} END AS owner_grants
FROM sched_api_key k LEFT JOIN sched_namespace n ON n.id = k.namespace_id
LEFT JOIN sched_user u ON u.id = k.owner_id
WHERE k.prefix = %(prefix)s AND k.revoked_at IS NULL AND u.disabled_at IS NULL
  AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())"""

_AGENTS = """
SELECT t.id, t.prefix, t.digest,
       coalesce(jsonb_object_agg(n.name, n.id) FILTER (WHERE n.id IS NOT NULL), '{}') AS namespaces
FROM sched_agent_token t LEFT JOIN sched_agent_token_namespace m ON m.token_id = t.id
LEFT JOIN sched_namespace n ON n.id = m.namespace_id
WHERE t.prefix = ANY(%(prefixes)s::text[]) AND t.revoked_at IS NULL
  AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp()) GROUP BY t.id"""


@dataclass(frozen=True, slots=True)
class ApiKeyRow:
    id: UUID
    digest: bytes
    name: str
    role: Role
    # None: every namespace.
    namespace: str | None
    # None: all that the role holds.
    scopes: list[str] | None
    requests_per_second: int | None
    owner_id: UUID | None
    # None: it has no owner.
    owner_grants: list[UserGrant] | None


@dataclass(frozen=True, slots=True)
class AgentTokenRow:
    id: UUID
    digest: bytes
    # name → id
    namespaces: dict[str, int]


async def namespace_ids(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Return the ids of these namespaces, in their order; raise NotFound for the first one missing."""
    rows = await connection.execute(
        "SELECT name, id FROM sched_namespace WHERE name = ANY(%(names)s)",
        {"names": list(names)},
    )
    found = {row.name: row.id for row in rows}
    for name in names:
        if name not in found:
            raise NotFound(f"There is no namespace {name}.", code="namespace.not_found")
    return {name: found[name] for name in names}


async def namespace_names(connection: Connection) -> list[str]:
    return list((await connection.execute("SELECT name FROM sched_namespace")).scalars())


async def namespace_ids_within(connection: Connection, names: Sequence[str] | None) -> list[int]:
    """Return the ids of these namespaces that exist, in order; None: of all."""
    rows = await connection.execute(
        "SELECT id FROM sched_namespace WHERE %(names)s::text[] IS NULL OR name = ANY(%(names)s) ORDER BY id",
        {"names": None if names is None else list(names)},
    )
    return list(rows.scalars())


async def valid_api_key(connection: Connection, prefix: str) -> ApiKeyRow | None:
    row = (await connection.execute(_VALID_KEY, {"prefix": prefix})).one_or_none()
    if row is None:
        return None
    grants = None if row.owner_grants is None else msgspec.convert(row.owner_grants, list[UserGrant])
    return ApiKeyRow(
        id=row.id,
        digest=bytes(row.digest),
        name=row.name,
        role=Role(row.role),
        namespace=row.namespace,
        scopes=row.scopes,
        requests_per_second=row.requests_per_second,
        owner_id=row.owner_id,
        owner_grants=grants,
    )


async def note_api_key_use(connection: Connection, ids: Sequence[UUID]) -> None:
    await connection.execute(
        "UPDATE sched_api_key SET last_used_at = clock_timestamp() WHERE id = ANY(%(ids)s)",
        {"ids": list(ids)},
    )


async def valid_agent_tokens(connection: Connection, prefixes: Sequence[str]) -> dict[str, AgentTokenRow]:
    """Return {prefix: its token}, of those that are valid; one query for all who ask at the same time."""
    rows = await connection.execute(_AGENTS, {"prefixes": list(prefixes)})
    return {row.prefix: AgentTokenRow(row.id, bytes(row.digest), dict(row.namespaces)) for row in rows}
