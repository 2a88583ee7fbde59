"""Logging in through an identity provider: authorization code with PKCE, groups that become roles."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from uuid import UUID

import structlog

from hetuflow_core.access.group_roles import GroupRoles
from hetuflow_core.access.roles import GrantOrigin
from hetuflow_core.client.endpoint import s256
from hetuflow_core.errors import Conflict, Denied, Invalid, NotFound, Unauthenticated
from hetuflow_core.resources.identity import LoginAnswer
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.identity import access_store
from hetuflow_server.identity.credentials import digest_of, new_id
from hetuflow_server.identity.logins.service import Logins
from hetuflow_server.identity.oidc import store
from hetuflow_server.identity.oidc.provider import OidcProvider
from hetuflow_server.identity.oidc.store import PendingLogin
from hetuflow_server.identity.users import store as user_store
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.context import RequestContext

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.oidc")

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_NOT_OF_NAMES: Final = re.compile(r"[^a-z0-9._@+-]")


@dataclass(frozen=True, slots=True)
class ClaimNames:
    """How the provider's claims are read."""

    name_claim: str
    groups_claim: str
    roles: GroupRoles

    def groups(self, claims: Mapping[str, Any]) -> list[str]:
        said = claims.get(self.groups_claim)
        return [one for one in said if isinstance(one, str)] if isinstance(said, list) else []

    def name(self, claims: Mapping[str, Any]) -> str:
        """Return a name of a user as we spell them."""
        for claim in (self.name_claim, "email", "sub"):
            said = claims.get(claim)
            if isinstance(said, str) and (name := _NOT_OF_NAMES.sub("-", said.lower()).lstrip("._@+-")):
                return name[:128]
        raise Unauthenticated("The identity provider says no name of yours.", code="oidc.refused")


@dataclass(frozen=True, slots=True)
class StartedLogin:
    # Where the browser goes.
    url: str
    # What the browser has to bring back, beside what the provider sends with it.
    state: str


@dataclass(frozen=True, slots=True)
class FinishedLogin:
    # One of the two: tokens, or where the browser takes a code that is exchanged for them.
    answer: LoginAnswer | None
    url: str | None


class OidcLogins:
    def __init__(
        self,
        database: Database,
        provider: OidcProvider | None,
        claimed: ClaimNames,
        logins: Logins,
        clock: Clock,
    ) -> None:
        self._database = database
        self._provider = provider
        self._claimed = claimed
        self._logins = logins
        self._clock = clock

    async def begin(
        self, context: RequestContext, redirect: str | None, challenge: str | None
    ) -> StartedLogin:
        """Send a browser to the provider; a command on the same machine may ask to be told at `redirect`."""
        _check_redirect(redirect, challenge)
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        url = await self._known().authorization_url(state=state, nonce=nonce, challenge=s256(verifier))
        async with self._database.transaction(context) as connection:
            await store.remember(
                connection, PendingLogin(digest_of(state), nonce, verifier, redirect, challenge, None)
            )
        return StartedLogin(url, state)

    async def finish(
        self, context: RequestContext, code: str, state: str, source: str | None
    ) -> FinishedLogin:
        """Let in whom the provider vouches for; a state is good once."""
        async with self._database.transaction(context) as connection:
            pending = await store.take(connection, digest_of(state))
        if pending is None or pending.user_id is not None:
            raise Unauthenticated("This login was not begun here, or too long ago.", code="oidc.state")
        claims = await self._known().claims_for(code, verifier=pending.verifier, nonce=pending.nonce)
        async with self._database.transaction(context) as connection:
            user_id, name = await self._user(connection, claims)
            if pending.redirect is None:
                return FinishedLogin(
                    await self._logins.open_session(connection, context.audit, user_id, name, source), None
                )
            handed = secrets.token_urlsafe(32)
            await store.remember(
                connection, PendingLogin(digest_of(handed), "", "", None, pending.challenge, user_id)
            )
        return FinishedLogin(None, f"{pending.redirect}?{urlencode({'code': handed})}")

    async def exchange(
        self, context: RequestContext, code: str, verifier: str, source: str | None
    ) -> LoginAnswer:
        """Give tokens to the command that has begun a login in a browser."""
        async with self._database.transaction(context) as connection:
            pending = await store.take(connection, digest_of(code))
            if (
                pending is None
                or pending.user_id is None
                or not hmac.compare_digest(s256(verifier), pending.challenge or "")
            ):
                raise Unauthenticated("This code is good no more: log in again.", code="oidc.state")
            name = await store.name_of(connection, pending.user_id)
            if name is None:
                raise Unauthenticated("This user is let in no more.", code="login.refused")
            return await self._logins.open_session(connection, context.audit, pending.user_id, name, source)

    def _known(self) -> OidcProvider:
        if self._provider is None:
            raise NotFound("No identity provider is set up here: log in with a password.", code="oidc.off")
        return self._provider

    async def _user(self, connection: Connection, claims: Mapping[str, Any]) -> tuple[UUID, str]:
        """Return the user of these claims, made if it is new, with the roles its groups stand for now."""
        issuer, subject = self._known().client.issuer, str(claims["sub"])
        known = await store.user_of(connection, issuer, subject)
        if known is None:
            known = await self._make(connection, issuer, subject, claims)
        if known.disabled:
            raise Unauthenticated("This user is let in no more.", code="login.refused")
        await self._give(connection, known.id, self._claimed.groups(claims))
        if not (await user_store.list_users(connection, name=known.name, limit=1))[0].grants:
            raise Denied("None of your groups has a role here: ask an admin for one.", code="oidc.no_role")
        return known.id, known.name

    async def _make(
        self, connection: Connection, issuer: str, subject: str, claims: Mapping[str, Any]
    ) -> store.KnownUser:
        name, said = self._claimed.name(claims), claims.get("name")
        display = said[:200] if isinstance(said, str) and said.isprintable() else None
        id_ = new_id(self._clock)
        made = await user_store.insert(
            connection,
            id_=id_,
            name=name,
            display_name=display,
            password_hash=None,
            issuer=issuer,
            subject=subject,
        )
        if not made:
            # Taking it over would let whoever may choose names at the provider become anybody here.
            raise Conflict(
                f"There is a user {name} already, whom the identity provider does not vouch for.",
                code="user.exists",
            )
        log.info("A user was made because the identity provider vouches for it.", user=name)
        return store.KnownUser(id_, name, disabled=False)

    async def _give(self, connection: Connection, user_id: UUID, groups: Sequence[str]) -> None:
        await store.take_back_all(connection, user_id)
        known = set(await access_store.namespace_names(connection))
        for given in self._claimed.roles.grants(groups):
            namespace_id = None
            if given.namespace is not None:
                if given.namespace not in known:
                    log.warning("A group stands for a role in no namespace.", namespace=given.namespace)
                    continue
                found = await access_store.namespace_ids(connection, [given.namespace])
                namespace_id = found[given.namespace]
            await user_store.grant(
                connection, new_id(self._clock), user_id, namespace_id, given, GrantOrigin.PROVIDER
            )


def _check_redirect(redirect: str | None, challenge: str | None) -> None:
    """Refuse to hand codes to anything but a program on the machine of the browser."""
    if redirect is None:
        return
    if not _is_here(redirect):
        raise Invalid("redirect must be an address of this machine, as in http://127.0.0.1:4711/.")
    if challenge is None or not _CHALLENGE.fullmatch(challenge):
        raise Invalid("redirect needs a challenge: the base64url of the SHA-256 of your verifier.")


def _is_here(redirect: str) -> bool:
    try:
        parts = urlsplit(redirect)
        local = parts.scheme == "http" and parts.hostname in _LOOPBACK and bool(parts.port)
    except ValueError:
        return False
    return local and not parts.query and not parts.fragment and redirect.isprintable()
