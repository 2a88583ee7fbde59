"""Logins that are under way at an identity provider, and the users it vouches for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from uuid import UUID

from hetuflow_server.postgres.connection import Connection

_REMEMBER = """
INSERT INTO sched_oidc_login (state_digest, nonce, verifier, redirect, challenge, user_id, expires_at)
VALUES (%(state_digest)s, %(nonce)s, %(verifier)s, %(redirect)s, %(challenge)s, %(user_id)s,
        clock_timestamp() + CASE WHEN %(user_id)s::uuid IS NULL THEN interval '10 minutes'
                                 ELSE interval '1 minute' END)"""

# Deleting is taking: nobody else finds it any more.
_TAKE = """
DELETE FROM sched_oidc_login WHERE state_digest = %(digest)s
RETURNING state_digest, nonce, verifier, redirect, challenge, user_id,
          expires_at > clock_timestamp() AS good"""


@dataclass(frozen=True, slots=True)
class PendingLogin:
    state_digest: bytes
    nonce: str
    verifier: str
    # Of the command that has begun it, if one has.
    redirect: str | None
    challenge: str | None
    # Once the provider has vouched: whom the command may log in as.
    user_id: UUID | None


@dataclass(frozen=True, slots=True)
class KnownUser:
    id: UUID
    name: str
    disabled: bool


async def remember(connection: Connection, login: PendingLogin) -> None:
    await connection.execute(_REMEMBER, asdict(login))


async def take(connection: Connection, digest: bytes) -> PendingLogin | None:
    """Take a login that is under way; nobody can take it twice."""
    row = (await connection.execute(_TAKE, {"digest": digest})).one_or_none()
    if row is None or not row.good:
        return None
    return PendingLogin(
        bytes(row.state_digest), row.nonce, row.verifier, row.redirect, row.challenge, row.user_id
    )


async def purge(connection: Connection) -> None:
    await connection.execute("DELETE FROM sched_oidc_login WHERE expires_at <= clock_timestamp()")


async def user_of(connection: Connection, issuer: str, subject: str) -> KnownUser | None:
    row = (
        await connection.execute(
            "SELECT id, name, disabled_at IS NOT NULL AS disabled FROM sched_user "
            "WHERE issuer = %(issuer)s AND subject = %(subject)s FOR UPDATE",
            {"issuer": issuer, "subject": subject},
        )
    ).one_or_none()
    return KnownUser(row.id, row.name, row.disabled) if row else None


async def name_of(connection: Connection, user_id: UUID) -> str | None:
    """Return the name of a user that is let in."""
    found: str | None = (
        await connection.execute(
            "SELECT name FROM sched_user WHERE id = %(id)s AND disabled_at IS NULL", {"id": user_id}
        )
    ).scalar_one_or_none()
    return found


async def take_back_all(connection: Connection, user_id: UUID) -> None:
    """Take back what the provider's groups stood for before."""
    await connection.execute(
        "DELETE FROM sched_user_grant WHERE user_id = %(id)s AND origin = 'provider'", {"id": user_id}
    )
