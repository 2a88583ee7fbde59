"""Users and their grants as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.access.permissions import Grant, Permission
from hetuflow_core.access.roles import GrantOrigin
from hetuflow_core.resources.identity import User, UserGrant
from hetuflow_server.postgres.connection import Connection

# Whoever changes who is an admin holds this until the end of the transaction, so that two cannot each take
# away the one that the other relies on.
_ADMINS_LOCK = 0x48465F41

# A user's grants, as JSON; `u` is the user.
GRANTS = """
coalesce((SELECT jsonb_agg(jsonb_build_object('namespace', n.name, 'role', g.role, 'also', g.also,
                                              'without', g.without, 'origin', g.origin)
                           ORDER BY n.name NULLS FIRST, g.origin)
          FROM sched_user_grant g LEFT JOIN sched_namespace n ON n.id = g.namespace_id
          WHERE g.user_id = u.id), '[]')"""

_SHOWN = f"""
SELECT u.id, u.name, u.display_name, u.password_hash IS NOT NULL AS has_password, u.issuer, u.subject,
       u.disabled_at IS NOT NULL AS disabled, u.created_at, u.updated_at, u.last_login_at, {GRANTS} AS grants
FROM sched_user u"""

_LIST = f"""
{_SHOWN}
WHERE (%(name)s::text IS NULL OR u.name = %(name)s) AND (%(after)s::text IS NULL OR u.name > %(after)s)
ORDER BY u.name LIMIT %(limit)s"""

_INSERT = """
INSERT INTO sched_user (id, name, display_name, password_hash, issuer, subject)
VALUES (%(id)s, %(name)s, %(display_name)s, %(password_hash)s, %(issuer)s, %(subject)s)
ON CONFLICT (name) DO NOTHING RETURNING id"""

_LOCK = "SELECT id, name, password_hash FROM sched_user u WHERE name = %(name)s FOR UPDATE"

_CHANGE = """
UPDATE sched_user SET display_name = %(display_name)s, updated_at = clock_timestamp() WHERE id = %(id)s"""

_SET_DISABLED = """
UPDATE sched_user
SET disabled_at = CASE WHEN %(disabled)s THEN coalesce(disabled_at, clock_timestamp()) END,
    updated_at = clock_timestamp()
WHERE id = %(id)s"""

_SET_HASH = """
UPDATE sched_user SET password_hash = %(password_hash)s, updated_at = clock_timestamp() WHERE id = %(id)s"""

_REHASH = """
UPDATE sched_user SET password_hash = %(new)s WHERE id = %(id)s AND password_hash = %(old)s"""

_TAKE_BACK = """
DELETE FROM sched_user_grant
WHERE user_id = %(user_id)s AND origin = %(origin)s AND namespace_id IS NOT DISTINCT FROM %(namespace_id)s
RETURNING id"""

_GRANT = """
INSERT INTO sched_user_grant (id, user_id, namespace_id, origin, role, also, without)
VALUES (%(id)s, %(user_id)s, %(namespace_id)s, %(origin)s, %(role)s, %(also)s, %(without)s)"""

_ADMINS = """
SELECT count(*) FROM sched_user u JOIN sched_user_grant g ON g.user_id = u.id
WHERE u.disabled_at IS NULL AND g.namespace_id IS NULL AND g.role = 'admin'
  AND NOT g.without @> ARRAY['users.manage']"""


@dataclass(frozen=True, slots=True)
class LockedUser:
    id: UUID
    name: str
    password_hash: str | None


async def insert(
    connection: Connection,
    *,
    id_: UUID,
    name: str,
    display_name: str | None,
    password_hash: str | None,
    issuer: str | None = None,
    subject: str | None = None,
) -> bool:
    """Make a user; False when there is one of this name."""
    made = await connection.execute(
        _INSERT,
        {
            "id": id_,
            "name": name,
            "display_name": display_name,
            "password_hash": password_hash,
            "issuer": issuer,
            "subject": subject,
        },
    )
    return made.first() is not None


async def list_users(
    connection: Connection, *, name: str | None = None, after: str | None = None, limit: int
) -> list[User]:
    """Return users by name, from behind `after`."""
    rows = await connection.execute(_LIST, {"name": name, "after": after, "limit": limit})
    return [_shown(row) for row in rows]


async def count_users(connection: Connection, cap: int) -> int:
    row = await connection.execute(
        "SELECT count(*) FROM (SELECT FROM sched_user LIMIT %(cap)s) counted", {"cap": cap}
    )
    return int(row.scalar_one())


async def lock(connection: Connection, name: str) -> LockedUser | None:
    row = (await connection.execute(_LOCK, {"name": name})).one_or_none()
    return LockedUser(row.id, row.name, row.password_hash) if row else None


async def change(connection: Connection, id_: UUID, *, display_name: str | None) -> None:
    await connection.execute(_CHANGE, {"id": id_, "display_name": display_name})


async def set_disabled(connection: Connection, id_: UUID, *, disabled: bool) -> None:
    await connection.execute(_SET_DISABLED, {"id": id_, "disabled": disabled})


async def set_password(connection: Connection, id_: UUID, password_hash: str | None) -> None:
    await connection.execute(_SET_HASH, {"id": id_, "password_hash": password_hash})


async def rehash(connection: Connection, id_: UUID, old: str, new: str) -> None:
    """Replace a hash by a better one of the same password, unless it was changed meanwhile."""
    await connection.execute(_REHASH, {"id": id_, "old": old, "new": new})


async def delete(connection: Connection, id_: UUID) -> None:
    """Delete a user with its grants, keys and sessions."""
    await connection.execute("DELETE FROM sched_user WHERE id = %(id)s", {"id": id_})


async def take_back(
    connection: Connection, user_id: UUID, namespace_id: int | None, origin: GrantOrigin
) -> bool:
    """Take what was granted in a namespace, or in all, back; False when nothing was."""
    gone = await connection.execute(
        _TAKE_BACK, {"user_id": user_id, "namespace_id": namespace_id, "origin": origin.value}
    )
    return gone.first() is not None


async def grant(
    connection: Connection,
    id_: UUID,
    user_id: UUID,
    namespace_id: int | None,
    given: Grant,
    origin: GrantOrigin,
) -> None:
    await connection.execute(
        _GRANT,
        {
            "id": id_,
            "user_id": user_id,
            "namespace_id": namespace_id,
            "origin": origin.value,
            "role": given.role.value,
            "also": sorted(given.also),
            "without": sorted(given.without),
        },
    )


async def lock_admins(connection: Connection) -> int:
    """Let nobody else change who is an admin until the end of the transaction; return how many there are."""
    await connection.execute("SELECT pg_advisory_xact_lock(%(key)s)", {"key": _ADMINS_LOCK})
    return await count_admins(connection)


async def count_admins(connection: Connection) -> int:
    """Return how many users may manage users."""
    return int((await connection.execute(_ADMINS)).scalar_one())


def grants_from(given: Sequence[UserGrant]) -> list[Grant]:
    """Read grants as they are shown; permissions this version does not know are left out."""
    return [Grant(one.role, one.namespace, known(one.also), known(one.without)) for one in given]


def known(names: Sequence[str]) -> frozenset[Permission]:
    every = {one.value: one for one in Permission}
    return frozenset(every[name] for name in names if name in every)


def _shown(row: Any) -> User:
    return User(**{**row.as_dict(), "grants": msgspec.convert(row.grants, list[UserGrant])})
