"""API keys: made for oneself or for another, never with more than their owner and their maker hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final
from uuid import UUID

import msgspec

from hetuflow_core.access.permissions import Grant, Permission, Rights, rights_of
from hetuflow_core.access.roles import Role
from hetuflow_core.durations import parse_duration
from hetuflow_core.errors import Conflict, Denied, Fault, Invalid, NotFound
from hetuflow_core.resources.identity import ApiKey, ApiKeyRequest, NewApiKey
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.identity import access_store
from hetuflow_server.identity.credentials import API_KEY_MARK, NewCredential, make_credential
from hetuflow_server.identity.keys import api_keys_store as store
from hetuflow_server.identity.keys.api_keys_store import KeyFilter, LockedKey, NewKey
from hetuflow_server.identity.users import store as user_store
from hetuflow_server.identity.users.service import permissions_named
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import PrincipalKind

_LONGEST_NAME: Final = 128
_MOST_REQUESTS: Final = 1_000_000
_LONGEST_LIFE: Final = timedelta(days=3650)
STATES: Final = ("valid", "expired", "revoked")


class ApiKeys:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def list_keys(
        self, context: RequestContext, wanted: KeyFilter, *, before: UUID | None, limit: int, cap: int
    ) -> tuple[list[ApiKey], int]:
        """Return the keys one may see, one more than `limit` when there are more, and the total."""
        wanted = _seen_by(context, wanted)
        async with self._database.transaction(context) as connection:
            found = await store.listed(connection, wanted, before=before, limit=limit + 1)
            return found, await store.count(connection, wanted, cap + 1)

    async def key(self, context: RequestContext, key_id: UUID) -> ApiKey:
        async with self._database.transaction(context) as connection:
            await self._lock(connection, context, key_id)
            return await _find(connection, key_id)

    async def create(self, context: RequestContext, asked: ApiKeyRequest) -> NewApiKey:
        """Make a key; the answer is the only one that shows it."""
        life = lifetime(asked.expires_in)
        _check(asked)
        own = rights_of_key(asked.role, asked.namespace, asked.scopes)
        if not context.principal.rights.covers(own):
            raise _exceeds(context)
        if context.principal.kind is PrincipalKind.REMOTE:
            raise Denied("Who is known to an identity provider only has no keys: make a user for it.")
        made = make_credential(API_KEY_MARK, self._clock)
        async with self._database.transaction(context) as connection:
            owner_id = await self._owner(connection, context, asked.owner)
            namespace_id = None
            if asked.namespace is not None:
                namespace_id = (await access_store.namespace_ids(connection, [asked.namespace]))[
                    asked.namespace
                ]
            await store.insert(
                connection,
                NewKey(
                    id=made.id,
                    prefix=made.prefix,
                    digest=made.digest,
                    name=asked.name,
                    role=asked.role,
                    namespace_id=namespace_id,
                    owner_id=owner_id,
                    scopes=None if asked.scopes is None else sorted(set(asked.scopes)),
                    requests_per_second=asked.requests_per_second,
                    expires_at=self._clock.now() + life if life else None,
                    created_by=context.principal.name,
                ),
            )
            shown = await _find(connection, made.id)
            context.audit.note_change("api_key", made.id, asked.namespace, after=msgspec.to_builtins(shown))
            return _shown_once(shown, made)

    async def revoke(self, context: RequestContext, key_id: UUID) -> ApiKey:
        """End a key, for good; again is harmless."""
        async with self._database.transaction(context) as connection:
            await self._lock(connection, context, key_id)
            before = await _find(connection, key_id)
            await store.revoke(connection, key_id)
            after = await _find(connection, key_id)
            context.audit.note_change(
                "api_key",
                key_id,
                after.namespace,
                before=msgspec.to_builtins(before),
                after=msgspec.to_builtins(after),
            )
            return after

    async def rotate(self, context: RequestContext, key_id: UUID, grace: str) -> NewApiKey:
        """Make another key of the same kind and let the old one end, at once or after a while."""
        longer = parse_duration(grace)
        made = make_credential(API_KEY_MARK, self._clock)
        async with self._database.transaction(context) as connection:
            old = await self._lock(connection, context, key_id)
            if old.state != "valid":
                raise Conflict(f"This key is {old.state}: make a new one.", code="api_key.ended")
            shown = await _find(connection, key_id)
            is_owner = context.principal.kind is PrincipalKind.USER and context.principal.id == old.owner_id
            if not is_owner and not context.principal.rights.covers(
                rights_of_key(old.role, shown.namespace, old.scopes)
            ):
                raise _exceeds(context)
            life = old.expires_at - old.created_at if old.expires_at else None
            await store.insert(
                connection,
                NewKey(
                    id=made.id,
                    prefix=made.prefix,
                    digest=made.digest,
                    name=old.name,
                    role=old.role,
                    namespace_id=old.namespace_id,
                    owner_id=old.owner_id,
                    scopes=old.scopes,
                    requests_per_second=old.requests_per_second,
                    expires_at=self._clock.now() + life if life else None,
                    created_by=context.principal.name,
                ),
            )
            if longer:
                await store.expire(connection, key_id, longer)
            else:
                await store.revoke(connection, key_id)
            new = await _find(connection, made.id)
            context.audit.note_change(
                "api_key",
                key_id,
                shown.namespace,
                before=msgspec.to_builtins(shown),
                after=msgspec.to_builtins(await _find(connection, key_id)),
            )
            context.audit.note_change("api_key", made.id, shown.namespace, after=msgspec.to_builtins(new))
            return _shown_once(new, made)

    async def _lock(self, connection: Connection, context: RequestContext, key_id: UUID) -> LockedKey:
        """Return a key one may see; those of others do not exist."""
        locked = await store.lock(connection, key_id)
        if locked is None or not _sees(context, locked):
            raise _no_key()
        return locked

    async def _owner(self, connection: Connection, context: RequestContext, owner: str | None) -> UUID | None:
        if owner is None:
            return context.principal.user_id
        user = await user_store.lock(connection, owner)
        if user is not None and user.id == context.principal.user_id:
            return user.id
        context.principal.needing(Permission.KEYS_MANAGE)
        if user is None:
            raise NotFound(f"There is no user {owner[:128]}.", code="user.not_found")
        return user.id


def rights_of_key(role: Role, namespace: str | None, scopes: list[str] | None) -> Rights:
    """Return what a key may do if its owner may do everything."""
    whole = rights_of([Grant(role, namespace)])
    return whole if scopes is None else whole.only(user_store.known(scopes))


def lifetime(expires_in: str | None) -> timedelta | None:
    """Read how long a credential is good."""
    if expires_in is None:
        return None
    life = parse_duration(expires_in)
    if not timedelta(0) < life <= _LONGEST_LIFE:
        raise Invalid("expires_in: must be more than nothing and at most ten years.")
    return life


def check_name(name: str) -> None:
    if not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
        fault = f"must be 1 to {_LONGEST_NAME} printable characters"
        raise Invalid(f"The name {fault}.", faults=[Fault("name", fault)])


def _check(asked: ApiKeyRequest) -> None:
    check_name(asked.name)
    if asked.scopes is not None:
        permissions_named(asked.scopes, "scopes")
    rate = asked.requests_per_second
    if rate is not None and not 1 <= rate <= _MOST_REQUESTS:
        fault = f"must be between 1 and {_MOST_REQUESTS}"
        raise Invalid(f"requests_per_second {fault}.", faults=[Fault("requests_per_second", fault)])


def _seen_by(context: RequestContext, wanted: KeyFilter) -> KeyFilter:
    """Restrict a filter to what one may see: all keys, those of the same owner, or just itself."""
    if context.principal.rights.allows_everywhere(Permission.KEYS_MANAGE):
        return wanted
    if context.principal.user_id is not None:
        return replace(wanted, owner_id=context.principal.user_id)
    return replace(wanted, only=context.principal.id)


def _sees(context: RequestContext, key: LockedKey) -> bool:
    if context.principal.rights.allows_everywhere(Permission.KEYS_MANAGE):
        return True
    return (
        key.owner_id == context.principal.user_id
        if context.principal.user_id is not None
        else key.id == context.principal.id
    )


def _exceeds(context: RequestContext) -> Denied:
    return Denied(
        f"Nobody makes a key for more than they may do: {context.principal.name} does not hold all of this."
    )


def _no_key() -> NotFound:
    return NotFound("There is no such API key.", code="api_key.not_found")


async def _find(connection: Connection, key_id: UUID) -> ApiKey:
    found = await store.by_id(connection, key_id)
    if found is None:
        raise _no_key()
    return found


def _shown_once(shown: ApiKey, made: NewCredential) -> NewApiKey:
    return NewApiKey(**msgspec.structs.asdict(shown), key=made.credential)
