"""API keys and agent tokens as rows; what they look like is decided in `services/access.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from hetuflow_core.errors import NotFound
from hetuflow_core.roles import Role
from hetuflow_server.store.connection import Connection


@dataclass(frozen=True, slots=True)
class ApiKeyRow:
    id: UUID
    prefix: str
    digest: bytes
    name: str
    role: Role
    # None: every namespace.
    namespace: str | None


@dataclass(frozen=True, slots=True)
class AgentTokenRow:
    id: UUID
    prefix: str
    digest: bytes
    name: str
    # name → id
    namespaces: dict[str, int]


async def namespace_ids(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Return the ids of these namespaces, in their order; raise NotFound for the first one missing."""
    rows = await connection.exec_driver_sql(
        "SELECT name, id FROM sched_namespace WHERE name = ANY(%(names)s)",
        {"names": list(names)},
    )
    found = {row.name: row.id for row in rows}
    for name in names:
        if name not in found:
            raise NotFound(f"There is no namespace {name}.", code="namespace.not_found")
    return {name: found[name] for name in names}


async def insert_api_key(
    connection: Connection,
    *,
    id_: UUID,
    prefix: str,
    digest: bytes,
    name: str,
    role: Role,
    namespace_id: int | None,
    expires_at: datetime | None,
) -> None:
    await connection.exec_driver_sql(
        "INSERT INTO sched_api_key (id, prefix, digest, name, role, namespace_id, expires_at) "
        "VALUES (%(id)s, %(prefix)s, %(digest)s, %(name)s, %(role)s, %(namespace_id)s, %(expires_at)s)",
        {
            "id": id_,
            "prefix": prefix,
            "digest": digest,
            "name": name,
            "role": role.value,
            "namespace_id": namespace_id,
            "expires_at": expires_at,
        },
    )


async def valid_api_key(connection: Connection, prefix: str) -> ApiKeyRow | None:
    row = (
        await connection.exec_driver_sql(
            "SELECT k.id, k.prefix, k.digest, k.name, k.role, n.name AS namespace FROM sched_api_key k "
            "LEFT JOIN sched_namespace n ON n.id = k.namespace_id WHERE k.prefix = %(prefix)s "
            "AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())",
            {"prefix": prefix},
        )
    ).one_or_none()
    if row is None:
        return None
    return ApiKeyRow(row.id, row.prefix, bytes(row.digest), row.name, Role(row.role), row.namespace)


async def note_api_key_use(connection: Connection, ids: Sequence[UUID]) -> None:
    await connection.exec_driver_sql(
        "UPDATE sched_api_key SET last_used_at = clock_timestamp() WHERE id = ANY(%(ids)s)",
        {"ids": list(ids)},
    )


async def insert_agent_token(
    connection: Connection,
    *,
    id_: UUID,
    prefix: str,
    digest: bytes,
    name: str,
    namespace_ids: Sequence[int],
    expires_at: datetime | None,
) -> None:
    await connection.exec_driver_sql(
        "INSERT INTO sched_agent_token (id, prefix, digest, name, expires_at) "
        "VALUES (%(id)s, %(prefix)s, %(digest)s, %(name)s, %(expires_at)s)",
        {"id": id_, "prefix": prefix, "digest": digest, "name": name, "expires_at": expires_at},
    )
    await connection.exec_driver_sql(
        "INSERT INTO sched_agent_token_namespace (token_id, namespace_id) "
        "SELECT %(id)s, namespace_id FROM unnest(%(namespaces)s::integer[]) AS namespace_id",
        {"id": id_, "namespaces": list(namespace_ids)},
    )


async def valid_agent_token(connection: Connection, prefix: str) -> AgentTokenRow | None:
    row = (
        await connection.exec_driver_sql(
            "SELECT t.id, t.prefix, t.digest, t.name, "
            "coalesce(jsonb_object_agg(n.name, n.id) FILTER (WHERE n.id IS NOT NULL), '{}') AS namespaces "
            "FROM sched_agent_token t LEFT JOIN sched_agent_token_namespace m ON m.token_id = t.id "
            "LEFT JOIN sched_namespace n ON n.id = m.namespace_id "
            "WHERE t.prefix = %(prefix)s AND t.revoked_at IS NULL "
            "AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp()) GROUP BY t.id",
            {"prefix": prefix},
        )
    ).one_or_none()
    if row is None:
        return None
    return AgentTokenRow(row.id, row.prefix, bytes(row.digest), row.name, dict(row.namespaces))
