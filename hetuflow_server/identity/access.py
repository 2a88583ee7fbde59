"""Who holds a credential; what was right a moment ago is believed without asking the database again."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Final, Generic, TypeVar
from uuid import UUID

from cachetools import LRUCache

from hetuflow_core.access.permissions import Rights, rights_of
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.identity import access_store as store
from hetuflow_server.identity.access_store import ApiKeyRow
from hetuflow_server.identity.credentials import (
    AGENT_TOKEN_MARK,
    API_KEY_MARK,
    digest_of,
    new_id,
    parse_credential,
    unknown_credential,
)
from hetuflow_server.identity.keys import agent_tokens_store as token_store
from hetuflow_server.identity.keys.agent_tokens_store import RemoteToken
from hetuflow_server.identity.keys.api_keys import rights_of_key
from hetuflow_server.identity.logins import store as session_store
from hetuflow_server.identity.logins.access_tokens import AccessClaims, AccessTokens, looks_like_jwt
from hetuflow_server.identity.request_rates import RequestRates
from hetuflow_server.identity.users import store as user_store
from hetuflow_server.identity.verifiers import IdentityVerifier, remote_id
from hetuflow_server.postgres.coalescing import Coalescer
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.principal import Principal, PrincipalKind

# How long a credential that was right is believed without asking the database: revoking takes this long.
_PEOPLE_BELIEVED_SECONDS: Final = 1.0
_AGENTS_BELIEVED_SECONDS: Final = 5.0
_MOST_BELIEVED: Final = 10_000
_MOST_READ: Final = 500

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class AgentCredential:
    """Who asks through the gateway; several agents may share one token."""

    token_id: UUID
    namespaces: dict[str, int]


@dataclass(frozen=True, slots=True)
class _KnownCredential:
    principal: Principal
    # Of its own; None: as many as anybody.
    requests_per_second: int | None


class Access:
    def __init__(
        self,
        database: Database,
        clock: Clock,
        rates: RequestRates,
        tokens: AccessTokens | None = None,
        verifiers: Sequence[IdentityVerifier] = (),
    ) -> None:
        self._database = database
        self._clock = clock
        self._verifiers = verifiers
        self._rates = rates
        # None: nobody logs in here.
        self._tokens = tokens
        self._sessions: _Believed[_KnownCredential] = _Believed(clock, _PEOPLE_BELIEVED_SECONDS)
        self._keys: _Believed[_KnownCredential] = _Believed(clock, _PEOPLE_BELIEVED_SECONDS)
        self._agents: _Believed[AgentCredential] = _Believed(clock, _AGENTS_BELIEVED_SECONDS)
        self._used: set[UUID] = set()
        # Agents that come back together are looked up together: one by one they would use up all connections.
        self._reading = Coalescer("tokens", self._read_tokens, most=_MOST_READ, weigh=lambda _: 1)

    async def principal(self, credential: str | None, source: str | None = None) -> Principal:
        """Return who asks, from where; refuse who is unknown, and who asks too often."""
        known = await self._recognised(credential)
        self._rates.count(known.principal.id, known.requests_per_second)
        return replace(known.principal, source=source)

    async def rights_now(self, credential: str | None) -> Rights:
        """Return what the holder of a credential may do by now, for answers that go on for long."""
        return (await self._recognised(credential)).principal.rights

    async def _recognised(self, credential: str | None) -> _KnownCredential:
        if credential is None or credential.startswith(f"{API_KEY_MARK}_"):
            known = await self._key(credential)
            self._used.add(known.principal.id)
            return known
        digest = digest_of(credential)
        if (known_already := self._sessions.get(digest.hex(), digest)) is not None:
            return known_already
        claims = self._tokens.read(credential) if self._tokens and looks_like_jwt(credential) else None
        known = await (self._session(claims) if claims else self._remote(credential))
        self._sessions.put(digest.hex(), digest, known, until=claims.expires_at if claims else None)
        return known

    def forget_session(self, session_id: UUID | None) -> None:
        """Believe a session no more that has just been ended here."""
        self._sessions.drop(lambda known: known.principal.session_id == session_id)

    async def _session(self, claims: AccessClaims) -> _KnownCredential:
        async with self._database.transaction() as connection:
            row = await session_store.valid_session(connection, claims.session_id)
            if row is None:
                raise unknown_credential()
            rights = await completed(connection, rights_of(user_store.grants_from(row.grants)))
        principal = Principal(
            row.user_id, PrincipalKind.USER, row.name, rights, user_id=row.user_id, session_id=row.id
        )
        return _KnownCredential(principal, None)

    async def _remote(self, credential: str) -> _KnownCredential:
        for verifier in self._verifiers:
            user = await verifier.user(credential)
            if user is not None:
                async with self._database.transaction() as connection:
                    rights = await completed(connection, rights_of(user.grants))
                id_ = remote_id(verifier.name, user.subject)
                return _KnownCredential(Principal(id_, PrincipalKind.REMOTE, user.name, rights), None)
        raise unknown_credential()

    async def _key(self, credential: str | None) -> _KnownCredential:
        prefix, digest = parse_credential(credential, API_KEY_MARK)
        if (known := self._keys.get(prefix, digest)) is None:
            async with self._database.transaction() as connection:
                row = await store.valid_api_key(connection, prefix)
                if row is None or not hmac.compare_digest(row.digest, digest):
                    raise unknown_credential()
                rights = await completed(connection, _rights(row))
            principal = Principal(row.id, PrincipalKind.KEY, row.name, rights, user_id=row.owner_id)
            known = _KnownCredential(principal, row.requests_per_second)
            self._keys.put(prefix, digest, known)
        return known

    async def agent(self, credential: str | None) -> AgentCredential:
        if credential is not None and self._verifiers and not credential.startswith(f"{AGENT_TOKEN_MARK}_"):
            return await self._remote_agent(credential)
        prefix, digest = parse_credential(credential, AGENT_TOKEN_MARK)
        if (agent := self._agents.get(prefix, digest)) is None:
            row = await self._reading.ask(prefix)
            if row is None or not hmac.compare_digest(row.digest, digest):
                raise unknown_credential()
            agent = AgentCredential(row.id, row.namespaces)
            self._agents.put(prefix, digest, agent)
        return agent

    async def _read_tokens(self, prefixes: Sequence[str]) -> list[store.AgentTokenRow | None]:
        async with self._database.single() as connection:
            found = await store.valid_agent_tokens(connection, sorted(set(prefixes)))
        return [found.get(prefix) for prefix in prefixes]

    async def _remote_agent(self, credential: str) -> AgentCredential:
        """Return an agent that a verifier vouches for; it has a row like a token, which can be revoked."""
        digest = digest_of(credential)
        if (agent := self._agents.get(digest.hex(), digest)) is None:
            vouched = await self._vouched_agent(credential)
            async with self._database.transaction() as connection:
                row = await token_store.ensure_remote(connection, new_id(self._clock), vouched)
            if row is None:
                raise unknown_credential()
            agent = AgentCredential(row.id, row.namespaces)
            self._agents.put(digest.hex(), digest, agent)
        return agent

    async def _vouched_agent(self, credential: str) -> RemoteToken:
        for verifier in self._verifiers:
            found = await verifier.agent(credential)
            if found is not None:
                mark = sha256(found.subject.encode()).hexdigest()[:16]
                return RemoteToken(f"{verifier.name}-{mark}", verifier.name, found.name, found.namespaces)
        raise unknown_credential()

    async def flush_uses(self) -> int:
        """Write down which keys were used, in one statement for all of them."""
        used, self._used = self._used, set()
        if used:
            async with self._database.transaction() as connection:
                await store.note_api_key_use(connection, sorted(used))
        return 0


def _rights(row: ApiKeyRow) -> Rights:
    """Return what a key may do: what it was made for, as far as its owner may do so now."""
    own = rights_of_key(row.role, row.namespace, row.scopes)
    if row.owner_grants is None:
        return own
    return own.cut_to(rights_of(user_store.grants_from(row.owner_grants)))


async def completed(connection: Connection, rights: Rights) -> Rights:
    """Name all namespaces where something is held in all but some of them."""
    if not rights.has_exceptions:
        return rights
    return rights.completed(await store.namespace_names(connection))


class _Believed(Generic[C]):
    """Credentials that were right a moment ago."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._entries: LRUCache[str, tuple[float, bytes, C]] = LRUCache(_MOST_BELIEVED)

    def get(self, prefix: str, digest: bytes) -> C | None:
        entry = self._entries.get(prefix)
        if entry is None or entry[0] < self._clock.monotonic() or not hmac.compare_digest(entry[1], digest):
            return None
        return entry[2]

    def put(self, prefix: str, digest: bytes, holder: C, *, until: datetime | None = None) -> None:
        """Believe a credential for a while, and never longer than it is good."""
        seconds = self._seconds
        if until is not None:
            seconds = min(seconds, (until - self._clock.now()).total_seconds())
        self._entries[prefix] = (self._clock.monotonic() + seconds, digest, holder)

    def drop(self, which: Callable[[C], bool]) -> None:
        for prefix in [prefix for prefix, entry in self._entries.items() if which(entry[2])]:
            del self._entries[prefix]
