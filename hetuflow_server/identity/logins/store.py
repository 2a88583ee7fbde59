"""Who is logged in, and how often somebody may try to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import msgspec

from hetuflow_core.resources.identity import Session, UserGrant
from hetuflow_server.identity.users.store import GRANTS
from hetuflow_server.postgres.connection import Connection

_OPEN = """
INSERT INTO sched_session (id, user_id, refresh_digest, source, expires_at)
VALUES (%(id)s, %(user_id)s, %(refresh_digest)s, %(source)s, clock_timestamp() + %(lifetime)s)"""

_NOTE_LOGIN = "UPDATE sched_user SET last_login_at = clock_timestamp() WHERE id = %(id)s"

_VALID = f"""
SELECT s.id, u.id AS user_id, u.name, {GRANTS} AS grants
FROM sched_session s JOIN sched_user u ON u.id = s.user_id
WHERE s.id = %(id)s AND s.expires_at > clock_timestamp() AND u.disabled_at IS NULL"""

# What the password is compared with; the user is not locked, because that is slow.
_LOGIN = """
SELECT u.id, u.name, u.password_hash, u.disabled_at IS NOT NULL AS disabled
FROM sched_user u WHERE u.name = %(name)s"""

_LOCK = """
SELECT s.id, s.user_id, u.name, s.refresh_digest, s.previous_digest,
       s.refreshed_at > clock_timestamp() - interval '30 seconds' AS just_refreshed
FROM sched_session s JOIN sched_user u ON u.id = s.user_id
WHERE s.id = %(id)s AND s.expires_at > clock_timestamp() AND u.disabled_at IS NULL FOR UPDATE OF s"""

_REFRESH = """
UPDATE sched_session
SET refresh_digest = %(digest)s, previous_digest = refresh_digest, refreshed_at = clock_timestamp(),
    expires_at = clock_timestamp() + %(lifetime)s
WHERE id = %(id)s"""

_END_OF_USER = """
DELETE FROM sched_session WHERE user_id = %(user_id)s AND id IS DISTINCT FROM %(but)s"""

_LIST = """
SELECT s.id, u.name AS user, s.source, s.created_at, s.refreshed_at, s.expires_at
FROM sched_session s JOIN sched_user u ON u.id = s.user_id
WHERE u.name = %(user)s AND s.expires_at > clock_timestamp()
  AND (%(before)s::uuid IS NULL OR s.id < %(before)s)
ORDER BY s.id DESC LIMIT %(limit)s"""

_COUNT = """
SELECT count(*) FROM (
  SELECT FROM sched_session s JOIN sched_user u ON u.id = s.user_id
  WHERE u.name = %(user)s AND s.expires_at > clock_timestamp() LIMIT %(cap)s) counted"""

# Fills the bucket for the time that has passed, then takes one if there is one.
_TAKE = """
INSERT INTO sched_login_rate AS r (bucket, tokens, refused)
VALUES (%(bucket)s, %(burst)s - 1, false)
ON CONFLICT (bucket) DO UPDATE SET (tokens, refused, updated_at) = (
  SELECT CASE WHEN filled >= 1 THEN filled - 1 ELSE filled END, filled < 1, clock_timestamp()
  FROM (SELECT least(%(burst)s, r.tokens
          + extract(epoch FROM clock_timestamp() - r.updated_at)::float * %(rate)s) AS filled) f)
RETURNING tokens, refused"""

_GIVE_BACK = """
UPDATE sched_login_rate SET tokens = tokens + 1 WHERE bucket = ANY(%(buckets)s::bytea[])"""


@dataclass(frozen=True, slots=True)
class LoginRow:
    id: UUID
    name: str
    password_hash: str | None
    disabled: bool


@dataclass(frozen=True, slots=True)
class SessionRow:
    id: UUID
    user_id: UUID
    name: str
    grants: list[UserGrant]


@dataclass(frozen=True, slots=True)
class LockedSession:
    id: UUID
    user_id: UUID
    name: str
    refresh_digest: bytes
    previous_digest: bytes | None
    just_refreshed: bool


async def user_to_log_in(connection: Connection, name: str) -> LoginRow | None:
    row = (await connection.execute(_LOGIN, {"name": name})).one_or_none()
    return LoginRow(row.id, row.name, row.password_hash, row.disabled) if row else None


async def open_session(
    connection: Connection,
    *,
    id_: UUID,
    user_id: UUID,
    refresh_digest: bytes,
    source: str | None,
    lifetime: timedelta,
) -> None:
    await connection.execute(
        _OPEN,
        {
            "id": id_,
            "user_id": user_id,
            "refresh_digest": refresh_digest,
            "source": source,
            "lifetime": lifetime,
        },
    )
    await connection.execute(_NOTE_LOGIN, {"id": user_id})


async def valid_session(connection: Connection, id_: UUID) -> SessionRow | None:
    row = (await connection.execute(_VALID, {"id": id_})).one_or_none()
    if row is None:
        return None
    return SessionRow(row.id, row.user_id, row.name, msgspec.convert(row.grants, list[UserGrant]))


async def lock(connection: Connection, id_: UUID) -> LockedSession | None:
    row = (await connection.execute(_LOCK, {"id": id_})).one_or_none()
    if row is None:
        return None
    previous = None if row.previous_digest is None else bytes(row.previous_digest)
    return LockedSession(
        row.id, row.user_id, row.name, bytes(row.refresh_digest), previous, row.just_refreshed
    )


async def listed(connection: Connection, user: str, *, before: UUID | None, limit: int) -> list[Session]:
    """Return the sessions of a user that have not ended, the newest first."""
    rows = await connection.execute(_LIST, {"user": user, "before": before, "limit": limit})
    return [Session(**row.as_dict()) for row in rows]


async def count(connection: Connection, user: str, cap: int) -> int:
    return int((await connection.execute(_COUNT, {"user": user, "cap": cap})).scalar_one())


async def refresh(connection: Connection, id_: UUID, digest: bytes, lifetime: timedelta) -> None:
    await connection.execute(_REFRESH, {"id": id_, "digest": digest, "lifetime": lifetime})


async def end(connection: Connection, id_: UUID) -> None:
    await connection.execute("DELETE FROM sched_session WHERE id = %(id)s", {"id": id_})


async def end_of_user(connection: Connection, user_id: UUID, *, but: UUID | None = None) -> None:
    """End all sessions of a user, but the one at hand."""
    await connection.execute(_END_OF_USER, {"user_id": user_id, "but": but})


async def take_attempt(connection: Connection, bucket: bytes, *, rate: float, burst: float) -> float | None:
    """Take an attempt from a bucket; return None, or how many tokens are there when that is too few."""
    row = (await connection.execute(_TAKE, {"bucket": bucket, "rate": rate, "burst": burst})).one()
    return float(row.tokens) if row.refused else None


async def give_back(connection: Connection, buckets: Sequence[bytes]) -> None:
    await connection.execute(_GIVE_BACK, {"buckets": sorted(buckets)})


async def purge(connection: Connection) -> int:
    """Forget sessions that have ended and attempts of long ago."""
    gone = await connection.execute("DELETE FROM sched_session WHERE expires_at <= clock_timestamp()")
    await connection.execute(
        "DELETE FROM sched_login_rate WHERE updated_at < clock_timestamp() - interval '1 hour'"
    )
    return gone.rowcount
