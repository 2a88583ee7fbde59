"""Users: made, granted roles, disabled and deleted by those who may do at least what they may."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from hetuflow_core.access.permissions import Grant, Permission, rights_of
from hetuflow_core.access.roles import GrantOrigin
from hetuflow_core.errors import Conflict, Denied, Fault, Invalid, NotFound
from hetuflow_core.resources.identity import GrantRequest, User, UserRequest
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.identity import access_store
from hetuflow_server.identity.credentials import new_id
from hetuflow_server.identity.logins import store as session_store
from hetuflow_server.identity.logins.passwords import Passwords, check_password
from hetuflow_server.identity.users import store
from hetuflow_server.identity.users.store import LockedUser
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.context import RequestContext

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,127}")
_LONGEST_DISPLAY_NAME: Final = 200


class Users:
    def __init__(self, database: Database, passwords: Passwords, clock: Clock) -> None:
        self._database = database
        self._passwords = passwords
        self._clock = clock

    async def list_users(self, *, after: str | None, limit: int, cap: int) -> tuple[list[User], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        async with self._database.transaction() as connection:
            found = await store.list_users(connection, after=after, limit=limit + 1)
            return found, await store.count_users(connection, cap + 1)

    async def user(self, context: RequestContext, name: str) -> User:
        async with self._database.transaction(context) as connection:
            return await _find(connection, name)

    async def create(self, context: RequestContext, asked: UserRequest) -> User:
        _check(asked)
        hashed = None if asked.password is None else await self._passwords.hash(asked.password)
        async with self._database.transaction(context) as connection:
            id_ = new_id(self._clock)
            made = await store.insert(
                connection,
                id_=id_,
                name=asked.name,
                display_name=asked.display_name,
                password_hash=hashed,
            )
            if not made:
                raise Conflict(f"There is a user {asked.name} already.", code="user.exists")
            if asked.role is not None:
                given = Grant(asked.role, asked.namespace)
                await self._give(connection, context, LockedUser(id_, asked.name, hashed), given)
            made_user = await _find(connection, asked.name)
            context.audit.note_change("user", asked.name, after=msgspec.to_builtins(made_user))
            return made_user

    async def change(self, context: RequestContext, name: str, display_name: str | None) -> User:
        _check_display_name(display_name)
        async with self._changing(context, name) as (connection, user):
            await store.change(connection, user.id, display_name=display_name)
        return await self.user(context, name)

    async def set_password(self, context: RequestContext, name: str, password: str | None) -> User:
        """Give a user another password, or none; whoever is logged in as it is logged out."""
        if password is not None:
            check_password(password, name)
        hashed = None if password is None else await self._passwords.hash(password)
        async with self._changing(context, name) as (connection, user):
            await store.set_password(connection, user.id, hashed)
            await session_store.end_of_user(connection, user.id)
        return await self.user(context, name)

    async def set_disabled(self, context: RequestContext, name: str, *, disabled: bool) -> User:
        """Let a user in no more, nor its keys; or again."""
        async with self._changing(context, name) as (connection, user):
            await store.set_disabled(connection, user.id, disabled=disabled)
            if disabled:
                await session_store.end_of_user(connection, user.id)
        return await self.user(context, name)

    async def delete(self, context: RequestContext, name: str) -> None:
        """Delete a user with its keys; what it has done keeps its name."""
        async with self._changing(context, name) as (connection, user):
            await store.delete(connection, user.id)

    async def grant(self, context: RequestContext, name: str, asked: GrantRequest) -> User:
        """Grant a role in a namespace or in all, in place of what was granted there before."""
        given = Grant(
            asked.role,
            asked.namespace,
            permissions_named(asked.also, "also"),
            permissions_named(asked.without, "without"),
        )
        async with self._changing(context, name) as (connection, user):
            await self._give(connection, context, user, given)
        return await self.user(context, name)

    async def revoke(self, context: RequestContext, name: str, namespace: str | None) -> User:
        """Take back what was granted in a namespace, or in all of them."""
        async with self._changing(context, name) as (connection, user):
            namespace_id = await _namespace_id(connection, namespace)
            if not await store.take_back(connection, user.id, namespace_id, GrantOrigin.LOCAL):
                where = f"in the namespace {namespace}" if namespace else "in all namespaces"
                raise NotFound(f"The user {name} was granted nothing {where}.", code="grant.not_found")
        return await self.user(context, name)

    async def _give(
        self, connection: Connection, context: RequestContext, user: LockedUser, given: Grant
    ) -> None:
        if not context.principal.rights.covers(rights_of([given])):
            raise Denied(
                f"Nobody grants more than they may do: {context.principal.name} does not hold all of this."
            )
        namespace_id = await _namespace_id(connection, given.namespace)
        await store.take_back(connection, user.id, namespace_id, GrantOrigin.LOCAL)
        await store.grant(connection, new_id(self._clock), user.id, namespace_id, given, GrantOrigin.LOCAL)

    @asynccontextmanager
    async def _changing(
        self, context: RequestContext, name: str
    ) -> AsyncIterator[tuple[Connection, LockedUser]]:
        """Change a user that may do no more than the asker; refuse at the end if no admin would be left."""
        async with self._database.transaction(context) as connection:
            admins = await store.lock_admins(connection)
            user = await store.lock(connection, name)
            if user is None:
                raise _no_user(name)
            before = await _find(connection, name)
            context.audit.note_change("user", name, before=msgspec.to_builtins(before))
            held = rights_of(store.grants_from(before.grants))
            if not context.principal.rights.covers(held):
                raise Denied(
                    f"The user {name} may do more than {context.principal.name}, who cannot change it."
                )
            yield connection, user
            if after := await store.list_users(connection, name=name, limit=1):
                context.audit.note_after("user", name, msgspec.to_builtins(after[0]))
            if admins and not await store.count_admins(connection):
                raise Conflict(
                    f"{name} is the last one who may manage users: make another admin first.",
                    code="user.last_admin",
                )


def permissions_named(names: Sequence[str], field: str) -> frozenset[Permission]:
    """Read names of permissions; refuse unknown ones, all at once."""
    every = {one.value: one for one in Permission}
    unknown = [Fault(field, f"there is no permission {name[:64]}") for name in names if name not in every]
    if unknown:
        raise Invalid(
            f"{unknown[0].message.capitalize()}: the reference of permissions lists them all.",
            code="permission.unknown",
            faults=unknown,
        )
    return frozenset(every[name] for name in names)


def _check(asked: UserRequest) -> None:
    if not _NAME.fullmatch(asked.name):
        fault = "must be 1 to 128 of a-z, 0-9 and ._@+-, and begin with a letter or digit"
        raise Invalid(f"The name {fault}.", code="user.name", faults=[Fault("name", fault)])
    _check_display_name(asked.display_name)
    if asked.password is not None:
        check_password(asked.password, asked.name)
    if asked.namespace is not None and asked.role is None:
        fault = "says where a role is granted: name the role too"
        raise Invalid(f"The namespace {fault}.", faults=[Fault("namespace", fault)])


def _check_display_name(name: str | None) -> None:
    if name is not None and (len(name) > _LONGEST_DISPLAY_NAME or not name.isprintable()):
        fault = f"must be up to {_LONGEST_DISPLAY_NAME} printable characters"
        raise Invalid(f"The display_name {fault}.", faults=[Fault("display_name", fault)])


async def _find(connection: Connection, name: str) -> User:
    found = await store.list_users(connection, name=name, limit=1)
    if not found:
        raise _no_user(name)
    return found[0]


async def _namespace_id(connection: Connection, namespace: str | None) -> int | None:
    if namespace is None:
        return None
    return (await access_store.namespace_ids(connection, [namespace]))[namespace]


def _no_user(name: str) -> NotFound:
    return NotFound(f"There is no user {name[:128]}.", code="user.not_found")
