"""Credentials: what they look like, how they are made, and who holds one."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Generic, TypeVar
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.errors import Unauthenticated
from hetuflow_core.permissions import Grant, rights_of
from hetuflow_core.roles import Role
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.services.principals import Principal, PrincipalKind
from hetuflow_server.store import access as store
from hetuflow_server.store.database import Database

API_KEY_MARK = "hk"
AGENT_TOKEN_MARK = "ha"  # noqa: S105 - a mark every token starts with
# How long a credential that was right is believed without asking the database: revoking takes this long.
_BELIEVED_SECONDS = 5.0
_MOST_BELIEVED = 10_000

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class AgentCredential:
    """Who asks through the gateway; several agents may share one token."""

    token_id: UUID
    namespaces: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Made:
    id: UUID
    prefix: str
    digest: bytes
    credential: str


class Access:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._principals: _Believed[Principal] = _Believed(clock)
        self._agents: _Believed[AgentCredential] = _Believed(clock)
        self._used: set[UUID] = set()

    async def create_api_key(
        self,
        *,
        name: str,
        role: Role,
        namespace: str | None = None,
        expires_in: timedelta | None = None,
    ) -> str:
        """Return a new key; it is shown this once and cannot be read again."""
        made = self._make(API_KEY_MARK)
        async with self._database.transaction() as connection:
            namespace_id = None
            if namespace is not None:
                namespace_id = (await store.namespace_ids(connection, [namespace]))[namespace]
            await store.insert_api_key(
                connection,
                id_=made.id,
                prefix=made.prefix,
                digest=made.digest,
                name=name,
                role=role,
                namespace_id=namespace_id,
                expires_at=self._clock.now() + expires_in if expires_in else None,
            )
        return made.credential

    async def create_agent_token(
        self,
        *,
        name: str,
        namespaces: Sequence[str],
        expires_in: timedelta | None = None,
    ) -> str:
        made = self._make(AGENT_TOKEN_MARK)
        async with self._database.transaction() as connection:
            found = await store.namespace_ids(connection, namespaces)
            await store.insert_agent_token(
                connection,
                id_=made.id,
                prefix=made.prefix,
                digest=made.digest,
                name=name,
                namespace_ids=list(found.values()),
                expires_at=self._clock.now() + expires_in if expires_in else None,
            )
        return made.credential

    async def principal(self, credential: str | None, source: str | None = None) -> Principal:
        prefix, digest = _parse(credential, API_KEY_MARK)
        if (principal := self._principals.get(prefix, digest)) is None:
            async with self._database.transaction() as connection:
                row = await store.valid_api_key(connection, prefix)
            if row is None or not hmac.compare_digest(row.digest, digest):
                raise _unknown()
            rights = rights_of([Grant(row.role, row.namespace)])
            principal = Principal(row.id, PrincipalKind.KEY, row.name, rights)
            self._principals.put(prefix, digest, principal)
        self._used.add(principal.id)
        return replace(principal, source=source)

    async def agent(self, credential: str | None) -> AgentCredential:
        prefix, digest = _parse(credential, AGENT_TOKEN_MARK)
        if (agent := self._agents.get(prefix, digest)) is None:
            async with self._database.transaction() as connection:
                row = await store.valid_agent_token(connection, prefix)
            if row is None or not hmac.compare_digest(row.digest, digest):
                raise _unknown()
            agent = AgentCredential(row.id, row.namespaces)
            self._agents.put(prefix, digest, agent)
        return agent

    async def flush_uses(self) -> int:
        """Write down which keys were used, in one statement for all of them."""
        used, self._used = self._used, set()
        if used:
            async with self._database.transaction() as connection:
                await store.note_api_key_use(connection, sorted(used))
        return 0

    def _make(self, mark: str) -> _Made:
        prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        credential = f"{mark}_{prefix}_{secret}"
        return _Made(
            ids.new_id(self._clock.now(), secrets.token_bytes(10)), prefix, _digest(credential), credential
        )


class _Believed(Generic[C]):
    """Credentials that were right a moment ago, so that the database is not asked at every request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, bytes, C]] = OrderedDict()

    def get(self, prefix: str, digest: bytes) -> C | None:
        entry = self._entries.get(prefix)
        if entry is None or entry[0] < self._clock.monotonic() or not hmac.compare_digest(entry[1], digest):
            return None
        return entry[2]

    def put(self, prefix: str, digest: bytes, holder: C) -> None:
        self._entries[prefix] = (self._clock.monotonic() + _BELIEVED_SECONDS, digest, holder)
        self._entries.move_to_end(prefix)
        if len(self._entries) > _MOST_BELIEVED:
            self._entries.popitem(last=False)


def _digest(credential: str) -> bytes:
    """Plain SHA-256 will do: the secret is 256 random bits, nobody guesses it from its digest."""
    return sha256(credential.encode()).digest()


def _parse(credential: str | None, mark: str) -> tuple[str, bytes]:
    if credential is None:
        raise Unauthenticated("This needs a credential: send an API key or token as bearer authorization.")
    parts = credential.split("_", 2)
    if len(parts) != 3 or parts[0] != mark:  # noqa: PLR2004 - mark, prefix, secret
        raise _unknown()
    return parts[1], _digest(credential)


def _unknown() -> Unauthenticated:
    return Unauthenticated("This credential is unknown, expired or revoked, or of the wrong kind.")
