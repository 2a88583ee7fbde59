"""What people do with named limits: define, look, raise and lower, delete."""

from __future__ import annotations

from hetuflow_core.errors import Conflict, NotFound
from hetuflow_core.jobfile import Kind, LimitSpec, load_documents, raw_document
from hetuflow_core.limits import Scope
from hetuflow_core.resources.limits import Limit, LimitRequest
from hetuflow_server.cluster.hints import Hints, namespace_topic
from hetuflow_server.identity import access_store
from hetuflow_server.limits import store as limit_store
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.requests.context import RequestContext


class Limits:
    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def list_limits(
        self,
        context: RequestContext,
        *,
        namespace: str | None,
        after: tuple[str, str] | None,
        limit: int,
        cap: int,
    ) -> tuple[list[Limit], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        namespaces = context.reach(namespace)
        async with self._database.transaction(context) as connection:
            found = await limit_store.list_limits(
                connection, namespaces=namespaces, after=after, limit=limit + 1
            )
            return found, await limit_store.count_limits(connection, namespaces, cap + 1)

    async def limit(self, context: RequestContext, namespace: str, name: str) -> Limit:
        async with self._database.transaction(context) as connection:
            return await self._find(connection, context, namespace, name)

    async def create(self, context: RequestContext, asked: LimitRequest) -> Limit:
        """Define a limit that is not there yet; the rules are those of a document of kind `limit`."""
        spec = _checked(asked.namespace, asked.name, asked.max)
        async with self._database.transaction(context) as connection:
            scope = await self._scope(connection, context, spec.namespace, spec.name)
            if not await limit_store.create(connection, scope, spec.max):
                raise Conflict(
                    f"The namespace {spec.namespace} has a limit {spec.name} already: change its max.",
                    code="limit.exists",
                )
            context.audit.note_change("limit", spec.name, spec.namespace, after={"max": spec.max})
            return await self._find(connection, context, spec.namespace, spec.name)

    async def change(self, context: RequestContext, namespace: str, name: str, most: int) -> Limit:
        """Raise or lower; what runs goes on, and nothing new starts until there is room again."""
        spec = _checked(namespace, name, most)
        async with self._database.transaction(context) as connection:
            scope = await self._scope(connection, context, spec.namespace, spec.name)
            before = await limit_store.change(connection, scope, spec.max)
            if before is None:
                raise _no_limit(spec.namespace, spec.name)
            context.audit.note_change(
                "limit", spec.name, spec.namespace, before={"max": before}, after={"max": spec.max}
            )
            changed = await self._find(connection, context, spec.namespace, spec.name)
        self._hints.give([namespace_topic(scope.namespace_id)], context)
        return changed

    async def delete(self, context: RequestContext, namespace: str, name: str) -> None:
        """Delete a limit nothing needs; jobs that name it, and work that counts against it, do."""
        async with self._database.transaction(context) as connection:
            scope = await self._scope(connection, context, namespace, name)
            await delete_limit(connection, context.audit, scope.namespace_id, namespace, name)

    async def _scope(
        self, connection: Connection, context: RequestContext, namespace: str, name: str
    ) -> Scope:
        context.require_namespace(namespace)
        return Scope((await access_store.namespace_ids(connection, [namespace]))[namespace], name)

    async def _find(
        self, connection: Connection, context: RequestContext, namespace: str, name: str
    ) -> Limit:
        found = await limit_store.list_limits(connection, namespaces=[namespace], name=name, limit=1)
        if not found or not context.sees(namespace):
            raise _no_limit(namespace, name)
        return found[0]


async def delete_limit(
    connection: Connection, audit: AuditContext, namespace_id: int, namespace: str, name: str
) -> None:
    """Delete a limit within a transaction; refuse if jobs name it or unfinished work counts against it."""
    scope = Scope(namespace_id, name)
    if not await limit_store.lock_for_deletion(connection, scope):
        raise _no_limit(namespace, name)
    if users := await limit_store.users(connection, scope):
        raise Conflict(
            f"The limit {name} is used by {', '.join(users)}: take it out of these jobs first.",
            code="limit.in_use",
        )
    if await limit_store.counts_unfinished(connection, scope):
        raise Conflict(
            f"Unfinished work counts against the limit {name}: wait for it, or cancel it.",
            code="limit.in_use",
        )
    (before,) = await limit_store.list_limits(connection, namespaces=[namespace], name=name, limit=1)
    audit.note_change("limit", name, namespace, before={"max": before.max})
    await limit_store.delete(connection, scope)


def _checked(namespace: str, name: str, most: int) -> LimitSpec:
    document = {"namespace": namespace, "name": name, "max": most}
    specs = load_documents([raw_document(document)], kind=Kind.LIMIT)
    return next(spec for spec in specs if isinstance(spec, LimitSpec))


def _no_limit(namespace: str, name: str) -> NotFound:
    return NotFound(f"The namespace {namespace} has no limit {name}.", code="limit.not_found")
