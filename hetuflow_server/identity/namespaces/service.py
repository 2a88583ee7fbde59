"""What people do with namespaces: make, weigh, label, bind to a server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from msgspec import UnsetType

from hetuflow_core.durations import format_duration
from hetuflow_core.errors import Conflict, Invalid, NotFound
from hetuflow_core.jobfile import Kind, NamespaceSpec, load_documents, raw_document, to_document
from hetuflow_core.resources.namespaces import BindRequest, Namespace, NamespaceChange, NamespaceRequest
from hetuflow_server.cluster import bindings_store
from hetuflow_server.cluster.bindings_store import LiveServer
from hetuflow_server.identity import access_store
from hetuflow_server.identity.namespaces import store
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import no_namespace


class Namespaces:
    def __init__(self, database: Database, *, dead_after: timedelta) -> None:
        self._database = database
        self._dead_after = dead_after

    async def list_namespaces(
        self, context: RequestContext, *, after: str | None, limit: int, cap: int
    ) -> tuple[list[Namespace], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        names = context.reach()
        async with self._database.transaction(context) as connection:
            found = await store.list_namespaces(connection, names=names, after=after, limit=limit + 1)
            return found, await store.count_namespaces(connection, names, cap + 1)

    async def namespace(self, context: RequestContext, name: str) -> Namespace:
        async with self._database.transaction(context) as connection:
            return await self._find(connection, context, name)

    async def create(self, context: RequestContext, asked: NamespaceRequest) -> Namespace:
        """Make a namespace; the rules are those of a document of kind `namespace`."""
        spec = _checked(asked.name, asked.weight, asked.lease, asked.labels)
        async with self._database.transaction(context) as connection:
            if not await store.create(connection, spec):
                raise Conflict(
                    f"There is a namespace {spec.name} already: change its weight, lease or labels.",
                    code="namespace.exists",
                )
            context.audit.note_change("namespace", spec.name, spec.name, after=to_document(spec))
            return await self._find(connection, context, spec.name)

    async def change(self, context: RequestContext, name: str, asked: NamespaceChange) -> Namespace:
        async with self._database.transaction(context) as connection:
            context.require_namespace(name)
            # Locked first: what is not given stays as whoever changed it before has left it.
            before = await store.lock(connection, name)
            if before is None:
                raise no_namespace(name)
            known_lease = None if before.lease is None else format_duration(before.lease)
            spec = _checked(
                name,
                before.weight if asked.weight is None else asked.weight,
                known_lease if isinstance(asked.lease, UnsetType) else asked.lease,
                before.labels if asked.labels is None else asked.labels,
            )
            await store.upsert(connection, spec)
            context.audit.note_change(
                "namespace", name, name, before=to_document(before), after=to_document(spec)
            )
            return await self._find(connection, context, name)

    async def bind(self, context: RequestContext, name: str, asked: BindRequest) -> Namespace:
        """Give a namespace to a server, to stay there if it is pinned; without a server take the pin away."""
        if asked.server is None and asked.pinned:
            raise Invalid("Name the server to pin to, or send pinned=false to take the pin away.")
        async with self._database.transaction(context) as connection:
            namespace_id = (await access_store.namespace_ids(connection, [name]))[name]
            if asked.server is None:
                await bindings_store.unpin(connection, namespace_id)
            else:
                server = await self._server(connection, asked.server)
                await bindings_store.assign(
                    connection, namespace_id, server.id, server.hostname if asked.pinned else None
                )
            context.audit.note_change(
                "binding", name, name, after={"server": asked.server, "pinned": asked.pinned}
            )
            return await self._find(connection, context, name)

    async def _server(self, connection: Connection, wanted: str) -> LiveServer:
        """Return the living server of this id, or the youngest one of this hostname."""
        living = await bindings_store.live_servers(connection, self._dead_after)
        id_ = _as_id(wanted)
        found = [one for one in living if one.id == id_ or one.hostname == wanted]
        if not found:
            raise NotFound(
                f"No server {wanted} lives: `hetuflow server list` shows ids and hostnames of those that do.",
                code="server.not_found",
            )
        return found[-1]

    async def _find(self, connection: Connection, context: RequestContext, name: str) -> Namespace:
        context.require_namespace(name)
        found = await store.list_namespaces(connection, names=[name], limit=1)
        if not found:
            raise no_namespace(name)
        return found[0]


def _checked(name: str, weight: int, lease: str | None, labels: Mapping[str, str]) -> NamespaceSpec:
    document = {"name": name, "weight": weight, "lease": lease, "labels": dict(labels)}
    specs = load_documents([raw_document(document)], kind=Kind.NAMESPACE)
    return next(spec for spec in specs if isinstance(spec, NamespaceSpec))


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
