"""API keys of people and programs, and tokens of agents, as rows that are listed and revoked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from hetuflow_core.access.roles import Role
from hetuflow_core.resources.identity import ApiKey
from hetuflow_server.postgres.connection import Connection

# Also for tokens, which live in the same way.
STATE = """CASE WHEN {0}.revoked_at IS NOT NULL THEN 'revoked'
     WHEN {0}.expires_at <= clock_timestamp() THEN 'expired' ELSE 'valid' END"""

_SHOWN = f"""
SELECT k.id, k.prefix, k.name, k.role, n.name AS namespace, k.scopes, u.name AS owner, k.requests_per_second,
       {STATE.format("k")} AS state, k.created_at, k.created_by, k.expires_at, k.last_used_at, k.revoked_at
FROM sched_api_key k LEFT JOIN sched_namespace n ON n.id = k.namespace_id
LEFT JOIN sched_user u ON u.id = k.owner_id"""

_FILTER = """
WHERE (%(owner_id)s::uuid IS NULL OR k.owner_id = %(owner_id)s)
  AND (%(only)s::uuid IS NULL OR k.id = %(only)s)
  AND (%(owner)s::text IS NULL OR u.name = %(owner)s)
  AND (%(state)s::text IS NULL OR {state} = %(state)s)""".replace("{state}", STATE.format("k"))

_LIST = f"""
{_SHOWN} {_FILTER} AND (%(before)s::uuid IS NULL OR k.id < %(before)s) ORDER BY k.id DESC LIMIT %(limit)s"""

_COUNT = f"""
SELECT count(*) FROM (
  SELECT FROM sched_api_key k LEFT JOIN sched_user u ON u.id = k.owner_id {_FILTER} LIMIT %(cap)s) counted"""

_INSERT = """
INSERT INTO sched_api_key (id, prefix, digest, name, role, namespace_id, owner_id, scopes,
                           requests_per_second, expires_at, created_by)
VALUES (%(id)s, %(prefix)s, %(digest)s, %(name)s, %(role)s, %(namespace_id)s, %(owner_id)s, %(scopes)s,
        %(requests_per_second)s, %(expires_at)s, %(created_by)s)"""

_LOCK = f"""
SELECT k.id, k.name, k.role, k.namespace_id, k.owner_id, k.scopes, k.requests_per_second, k.created_at,
       k.expires_at, {STATE.format("k")} AS state
FROM sched_api_key k WHERE k.id = %(id)s FOR UPDATE OF k"""

_REVOKE = """
UPDATE sched_api_key SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE id = %(id)s"""

_EXPIRE = """
UPDATE sched_api_key SET expires_at = least(expires_at, clock_timestamp() + %(grace)s) WHERE id = %(id)s"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    id: UUID
    prefix: str
    digest: bytes
    name: str
    role: Role
    namespace_id: int | None
    owner_id: UUID | None
    # None: all that the role holds.
    scopes: list[str] | None
    requests_per_second: int | None
    expires_at: datetime | None
    created_by: str | None


@dataclass(frozen=True, slots=True)
class LockedKey:
    id: UUID
    name: str
    role: Role
    namespace_id: int | None
    owner_id: UUID | None
    scopes: list[str] | None
    requests_per_second: int | None
    created_at: datetime
    expires_at: datetime | None
    state: str


@dataclass(frozen=True, slots=True)
class KeyFilter:
    # Those of one user, if that is all the reader may see.
    owner_id: UUID | None = None
    # One key, if that is all the reader may see.
    only: UUID | None = None
    owner: str | None = None
    state: str | None = None


async def insert(connection: Connection, key: NewKey) -> None:
    await connection.execute(_INSERT, asdict(key))


async def listed(
    connection: Connection, wanted: KeyFilter, *, before: UUID | None, limit: int
) -> list[ApiKey]:
    """Return keys, newest first."""
    rows = await connection.execute(_LIST, {**asdict(wanted), "before": before, "limit": limit})
    return [_shown(row) for row in rows]


async def count(connection: Connection, wanted: KeyFilter, cap: int) -> int:
    row = await connection.execute(_COUNT, {**asdict(wanted), "cap": cap})
    return int(row.scalar_one())


async def by_id(connection: Connection, id_: UUID) -> ApiKey | None:
    row = (await connection.execute(f"{_SHOWN} WHERE k.id = %(id)s", {"id": id_})).one_or_none()
    return _shown(row) if row else None


async def lock(connection: Connection, id_: UUID) -> LockedKey | None:
    row = (await connection.execute(_LOCK, {"id": id_})).one_or_none()
    if row is None:
        return None
    return LockedKey(**{**row.as_dict(), "role": Role(row.role)})


async def revoke(connection: Connection, id_: UUID) -> None:
    await connection.execute(_REVOKE, {"id": id_})


async def expire(connection: Connection, id_: UUID, grace: timedelta) -> None:
    """Let a key be good for so much longer at most."""
    await connection.execute(_EXPIRE, {"id": id_, "grace": grace})


def _shown(row: Any) -> ApiKey:
    return ApiKey(**{**row.as_dict(), "role": Role(row.role)})
