"""Logging in and out: passwords, sessions that can be ended, tokens that are good for a short while."""

from __future__ import annotations

import hmac
import math
import secrets
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Final
from uuid import UUID

import structlog

from hetuflow_core.errors import Denied, TooMany, Unauthenticated
from hetuflow_core.resources.identity import LoginAnswer
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.identity.credentials import digest_of, new_id
from hetuflow_server.identity.logins import store
from hetuflow_server.identity.logins.access_tokens import AccessTokens
from hetuflow_server.identity.logins.passwords import Passwords, check_password
from hetuflow_server.identity.oidc import store as oidc_store
from hetuflow_server.identity.users import store as user_store
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.requests.context import RequestContext

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.logins")

REFRESH_MARK: Final = "hr"
_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class LoginLimits:
    """How often a minute somebody may fail to log in: as one user, and from one address."""

    per_user: int
    per_source: int


class Logins:
    def __init__(
        self,
        database: Database,
        passwords: Passwords,
        tokens: AccessTokens,
        clock: Clock,
        *,
        session_lifetime: timedelta,
        limits: LoginLimits,
    ) -> None:
        self._database = database
        self._passwords = passwords
        self._tokens = tokens
        self._clock = clock
        self._lifetime = session_lifetime
        self._limits = limits

    async def log_in(
        self, context: RequestContext, name: str, password: str, source: str | None
    ) -> LoginAnswer:
        """Open a session; the unknown, disabled and mistaken get the same answer after the same time."""
        buckets = await self._count_attempt(name, source)
        async with self._database.transaction(context) as connection:
            user = await store.user_to_log_in(connection, name)
        hashed = None if user is None or user.disabled else user.password_hash
        if not await self._passwords.matches(hashed, password) or user is None or hashed is None:
            log.info("A login was refused.", user=name[:128], source=source)
            raise Unauthenticated("The name or the password is wrong.", code="login.refused")
        better = await self._passwords.hash(password) if self._passwords.outdated(hashed) else None
        async with self._database.transaction(context) as connection:
            await store.give_back(connection, buckets)
            if better is not None:
                await user_store.rehash(connection, user.id, hashed, better)
            return await self.open_session(connection, context.audit, user.id, user.name, source)

    async def open_session(
        self, connection: Connection, audit: AuditContext, user_id: UUID, name: str, source: str | None
    ) -> LoginAnswer:
        """Open a session of a user that has proved to be one."""
        audit.name_actor("user", user_id, name)
        session_id = new_id(self._clock)
        audit.note_change("session", session_id, after={"user": name})
        refresh_token = _refresh_token(session_id)
        await store.open_session(
            connection,
            id_=session_id,
            user_id=user_id,
            refresh_digest=digest_of(refresh_token),
            source=source,
            lifetime=self._lifetime,
        )
        return self._answer(session_id, user_id, name, refresh_token)

    async def refresh(self, context: RequestContext, refresh_token: str) -> LoginAnswer:
        """Answer with new tokens. A refresh token is good once: one that comes back later was stolen."""
        session_id, digest = _session_of(refresh_token), digest_of(refresh_token)
        async with self._database.transaction(context) as connection:
            session = await store.lock(connection, session_id)
            if session is not None and hmac.compare_digest(session.refresh_digest, digest):
                context.audit.name_actor("user", session.user_id, session.name)
                fresh = _refresh_token(session_id)
                context.audit.note_change(
                    "session", session_id, before={"refreshed": False}, after={"refreshed": True}
                )
                await store.refresh(connection, session_id, digest_of(fresh), self._lifetime)
                return self._answer(session_id, session.user_id, session.name, fresh)
            used = session is not None and session.previous_digest is not None
            # Two tabs of one browser may refresh at the same moment; that is no theft.
            if (
                used
                and session is not None
                and not session.just_refreshed
                and hmac.compare_digest(session.previous_digest or b"", digest)
            ):
                await store.end(connection, session_id)
                log.warning("A used refresh token came back; its session is ended.", user=session.name)
        raise Unauthenticated("This refresh token is good no more: log in again.", code="login.refused")

    async def log_out(self, context: RequestContext) -> None:
        if context.principal.session_id is None:
            raise Denied("Only who has logged in can log out: revoke a key instead.", code="login.no_session")
        async with self._database.transaction(context) as connection:
            context.audit.note_change(
                "session", context.principal.session_id, before={"user": context.principal.name}
            )
            await store.end(connection, context.principal.session_id)

    async def change_password(self, context: RequestContext, current: str, password: str) -> None:
        """Change one's own password; other sessions of the same user end."""
        if context.principal.session_id is None:
            raise Denied("Log in to change your password.", code="login.no_session")
        check_password(password, context.principal.name)
        buckets = await self._count_attempt(context.principal.name, context.principal.source)
        async with self._database.transaction(context) as connection:
            user = await store.user_to_log_in(connection, context.principal.name)
        if user is None or not await self._passwords.matches(user.password_hash, current):
            raise Denied("The current password is wrong.", code="password.wrong")
        hashed = await self._passwords.hash(password)
        async with self._database.transaction(context) as connection:
            await store.give_back(connection, buckets)
            context.audit.note_change(
                "user", context.principal.name, before={"password": "old"}, after={"password": "new"}
            )
            await user_store.set_password(connection, user.id, hashed)
            await store.end_of_user(connection, user.id, but=context.principal.session_id)

    async def purge(self) -> int:
        """Forget what has ended; returns 0 because it can wait for the next round."""
        async with self._database.transaction() as connection:
            await store.purge(connection)
            await oidc_store.purge(connection)
        return 0

    async def _count_attempt(self, name: str, source: str | None) -> list[bytes]:
        """Count an attempt before it is judged; those that succeed are given back."""
        wanted = [("user", name, self._limits.per_user)]
        if source is not None:
            wanted.append(("source", source, self._limits.per_source))
        buckets = [sha256(f"{kind}:{whose}".encode()).digest() for kind, whose, _ in wanted]
        # In one order, so that two attempts at once do not wait for each other.
        in_order = sorted(zip(buckets, (most for _, _, most in wanted), strict=True))
        # Without the context: counting an attempt is not a change to audit.
        async with self._database.transaction() as connection:
            waits = [
                _wait(await store.take_attempt(connection, bucket, rate=most / _MINUTE, burst=most), most)
                for bucket, most in in_order
            ]
        if wait := max(waits):
            raise TooMany(
                "Too many attempts to log in: wait, and try again.", code="login.limited", retry_after=wait
            )
        return buckets

    def _answer(self, session_id: UUID, user_id: UUID, name: str, refresh_token: str) -> LoginAnswer:
        access_token = self._tokens.make(session_id, user_id)
        return LoginAnswer(name, access_token, int(self._tokens.lifetime.total_seconds()), refresh_token)


def _wait(tokens: float | None, per_minute: int) -> int:
    return 0 if tokens is None else max(1, math.ceil((1 - tokens) * _MINUTE / per_minute))


def _refresh_token(session_id: UUID) -> str:
    return f"{REFRESH_MARK}_{session_id.hex}_{secrets.token_urlsafe(32)}"


def _session_of(refresh_token: str) -> UUID:
    mark, _, rest = refresh_token.partition("_")
    try:
        return UUID(hex=rest.partition("_")[0] if mark == REFRESH_MARK else "")
    except ValueError:
        raise Unauthenticated("This is no refresh token: log in again.", code="login.refused") from None
