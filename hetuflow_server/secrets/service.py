"""What people do with secrets: set, look at what is known of them, delete, change the servers' key."""

from __future__ import annotations

import secrets
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.errors import Conflict, Fault, Invalid, NotFound
from hetuflow_core.jobfile import Kind, SecretSpec, load_documents, raw_document
from hetuflow_core.resources.apply import ApplyAction
from hetuflow_core.resources.secrets import KeyRotation, Secret
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.identity import access_store
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.secrets import store
from hetuflow_server.secrets.keyring import Keyring, Sealed
from hetuflow_server.secrets.store import SealedRow

_REWRAPPED_AT_ONCE = 100
_USERS_SHOWN = 20


class Secrets:
    def __init__(self, database: Database, keyring: Keyring, clock: Clock) -> None:
        self._database = database
        self._keyring = keyring
        self._clock = clock

    async def list_secrets(
        self,
        context: RequestContext,
        *,
        namespace: str | None,
        after: tuple[str, str] | None,
        limit: int,
        cap: int,
    ) -> tuple[list[Secret], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        namespaces = context.reach(namespace)
        async with self._database.transaction(context) as connection:
            found = await store.list_secrets(connection, namespaces=namespaces, after=after, limit=limit + 1)
            return found, await store.count_secrets(connection, namespaces, cap + 1)

    async def secret(self, context: RequestContext, namespace: str, name: str) -> Secret:
        async with self._database.transaction(context) as connection:
            namespace_id = await _namespace_id(connection, context, namespace)
            return await _described(connection, namespace, namespace_id, name)

    async def create(self, context: RequestContext, namespace: str, name: str, value: str) -> Secret:
        spec = checked(namespace, name, value)
        async with self._database.transaction(context) as connection:
            namespace_id = await _namespace_id(connection, context, namespace)
            if await store.lock(connection, namespace_id, name) is not None:
                raise Conflict(
                    f"The namespace {namespace} has a secret {name} already: change its value.",
                    code="secret.exists",
                )
            await self.put(connection, context, namespace_id, spec)
            return await _described(connection, namespace, namespace_id, name)

    async def set(
        self, context: RequestContext, namespace: str, name: str, value: str, *, must_exist: bool = False
    ) -> Secret:
        """Give a secret this value, as a new version if it had another; make it if there is none."""
        spec = checked(namespace, name, value)
        async with self._database.transaction(context) as connection:
            namespace_id = await _namespace_id(connection, context, namespace)
            if must_exist and await store.lock(connection, namespace_id, name) is None:
                raise _no_secret(namespace, name)
            await self.put(connection, context, namespace_id, spec)
            return await _described(connection, namespace, namespace_id, name)

    async def put(
        self, connection: Connection, context: RequestContext, namespace_id: int, spec: SecretSpec
    ) -> ApplyAction:
        """Write the value inside a transaction; nothing if the secret has this very value."""
        by = context.principal.name
        new = ids.new_id(self._clock.now(), secrets.token_bytes(10))
        if await store.create(connection, new, namespace_id, spec.name, by):
            await self._add(connection, new, 1, spec)
            _note(context.audit, spec.namespace, spec.name, None, 1)
            return ApplyAction.CREATED
        found = await store.lock(connection, namespace_id, spec.name)
        if found is None:
            raise Conflict(f"The secret {spec.name} was deleted meanwhile: try again.", code="secret.gone")
        id_, version = found
        if await self._is(connection, namespace_id, spec):
            return ApplyAction.UNCHANGED
        await store.next_version(connection, id_, version + 1, by)
        await self._add(connection, id_, version + 1, spec)
        _note(context.audit, spec.namespace, spec.name, version, version + 1)
        return ApplyAction.CHANGED

    async def delete(self, context: RequestContext, namespace: str, name: str) -> None:
        async with self._database.transaction(context) as connection:
            namespace_id = await _namespace_id(connection, context, namespace)
            await delete_secret(connection, context.audit, namespace_id, namespace, name)

    async def rotate_key(self, context: RequestContext) -> KeyRotation:
        """Re-encrypt the keys of some values that are under a former key; call it until none remains."""
        async with self._database.transaction(context) as connection:
            rows = await store.under_other_keys(connection, self._keyring.current, _REWRAPPED_AT_ONCE)
            for row in rows:
                again = self._keyring.rewrap(
                    Sealed(row.key_id, row.wrapped_key, row.ciphertext), bound_to(row.id, row.version)
                )
                new = SealedRow(row.id, row.version, again.key_id, again.wrapped_key, row.ciphertext)
                await store.rewrap(connection, new, row.key_id)
        async with self._database.transaction(context) as connection:
            remaining = await store.count_under_other_keys(connection, self._keyring.current)
        return KeyRotation(len(rows), remaining)

    async def _add(self, connection: Connection, id_: UUID, version: int, spec: SecretSpec) -> None:
        sealed = self._keyring.seal(spec.value or "", bound_to(id_, version))
        row = SealedRow(id_, version, sealed.key_id, sealed.wrapped_key, sealed.ciphertext)
        await store.add_value(connection, row)

    async def _is(self, connection: Connection, namespace_id: int, spec: SecretSpec) -> bool:
        for row in await store.values(connection, namespace_id, {spec.name: None}):
            try:
                value = open_row(self._keyring, row)
            except Conflict:
                return False  # it cannot be read any more, which a new value mends
            return secrets.compare_digest(value.encode(), (spec.value or "").encode())
        return False


async def delete_secret(
    connection: Connection, audit: AuditContext, namespace_id: int, namespace: str, name: str
) -> None:
    """Delete a secret within a transaction; refuse if jobs use it."""
    found = await store.lock(connection, namespace_id, name)
    if found is None:
        raise _no_secret(namespace, name)
    if users := await store.users(connection, namespace_id, name, 3):
        raise Conflict(
            f"The secret {name} is used by {', '.join(users)}: take it out of these jobs first.",
            code="secret.in_use",
        )
    await store.delete(connection, found[0])
    _note(audit, namespace, name, found[1], None)


def _note(audit: AuditContext, namespace: str, name: str, before: int | None, after: int | None) -> None:
    """In the audit trail a secret is its version: a digest of a value could be guessed from."""
    audit.note_change(
        "secret",
        name,
        namespace,
        before=None if before is None else {"version": before},
        after=None if after is None else {"version": after},
    )


def bound_to(id_: UUID, version: int) -> str:
    """What a value belongs to; encrypted with it, so that rows cannot change places."""
    return f"{id_}/{version}"


def open_row(keyring: Keyring, row: SealedRow) -> str:
    sealed = Sealed(row.key_id, row.wrapped_key, row.ciphertext)
    return keyring.open(sealed, bound_to(row.id, row.version))


def checked(namespace: str, name: str, value: str) -> SecretSpec:
    """The rules are those of a document of kind `secret`."""
    document = {"namespace": namespace, "name": name, "value": value}
    specs = load_documents([raw_document(document)], kind=Kind.SECRET)
    return next(spec for spec in specs if isinstance(spec, SecretSpec))


def refuse_sources(specs: list[SecretSpec]) -> None:
    """Only who reads the file can read what it points to."""
    faults = [
        Fault(f"{spec.namespace}/{spec.name}", "from is read where the file is: send the value itself.")
        for spec in specs
        if spec.value is None
    ]
    if faults:
        raise Invalid("Secrets without a value cannot be applied.", code="secret.no_value", faults=faults)


async def _namespace_id(connection: Connection, context: RequestContext, namespace: str) -> int:
    context.require_namespace(namespace)
    return (await access_store.namespace_ids(connection, [namespace]))[namespace]


async def _described(connection: Connection, namespace: str, namespace_id: int, name: str) -> Secret:
    found = await store.find(connection, namespace_id, name)
    if found is None:
        raise _no_secret(namespace, name)
    users = await store.users(connection, namespace_id, name, _USERS_SHOWN)
    return Secret(
        found.namespace,
        found.name,
        found.version,
        found.created_at,
        found.updated_at,
        found.updated_by,
        users,
    )


def _no_secret(namespace: str, name: str) -> NotFound:
    return NotFound(f"The namespace {namespace} has no secret {name}.", code="secret.not_found")
