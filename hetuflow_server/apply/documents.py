"""Applying documents: all together or not at all, and nothing when nothing differs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from hetuflow_core.access.permissions import Permission
from hetuflow_core.errors import NotFound
from hetuflow_core.jobfile import (
    Document,
    JobSpec,
    Kind,
    NamespaceSpec,
    SecretSpec,
    WebhookSpec,
    load_documents,
    raw_documents,
    to_document,
)
from hetuflow_core.resources.apply import AppliedDocument, ApplyAction, ApplyRequest, ApplyResult
from hetuflow_core.resources.jobs import Job
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.apply.calendars import apply_calendars
from hetuflow_server.apply.flows import refuse_bad_calls
from hetuflow_server.apply.jobs import apply_jobs
from hetuflow_server.apply.limits import apply_limits
from hetuflow_server.apply.owners import (
    Pruning,
    check_owner,
    left_over,
    named,
    stamp,
    unowned as find_unowned,
)
from hetuflow_server.apply.owners_store import OwnedRow
from hetuflow_server.apply.secrets import apply_secrets, refuse_unknown_secrets, uses_secrets
from hetuflow_server.identity.namespaces import store as namespace_store
from hetuflow_server.jobs import store as job_store
from hetuflow_server.jobs.document_changes import field_changes
from hetuflow_server.postgres.connection import Lane
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules.consequences import Consequences
from hetuflow_server.schedules.edits import ScheduleEdits
from hetuflow_server.secrets.service import Secrets
from hetuflow_server.webhooks.service import Webhooks, apply_webhooks

# kind → what seeing it and what writing it needs.
_NEEDED: Final = {
    Kind.JOB: (Permission.JOBS_READ, Permission.JOBS_WRITE),
    Kind.CALENDAR: (Permission.CALENDARS_READ, Permission.CALENDARS_WRITE),
    Kind.LIMIT: (Permission.LIMITS_READ, Permission.LIMITS_WRITE),
    Kind.SECRET: (Permission.SECRETS_READ, Permission.SECRETS_WRITE),
    Kind.WEBHOOK: (Permission.WEBHOOKS_READ, Permission.WEBHOOKS_WRITE),
}
# So many documents are read at once.
_FEW: Final = 20


class DocumentApplier:
    def __init__(
        self,
        database: Database,
        clock: Clock,
        edits: ScheduleEdits,
        secrets: Secrets | None = None,
        webhooks: Webhooks | None = None,
    ) -> None:
        """`secrets` and `webhooks`: who writes those; without, documents of that kind are refused."""
        self._database = database
        self._clock = clock
        self._edits = edits
        self._secrets = secrets
        self._webhooks = webhooks

    async def apply(
        self,
        context: RequestContext,
        documents: Sequence[dict[str, Any]],
        *,
        dry_run: bool,
    ) -> ApplyResult:
        return await self.apply_request(context, ApplyRequest(list(documents)), dry_run=dry_run)

    async def apply_request(
        self, context: RequestContext, asked: ApplyRequest, *, dry_run: bool
    ) -> ApplyResult:
        """Apply documents, and do about their owner what is asked for."""
        check_owner(asked)
        specs = await _load(asked.documents)
        check_rights(context, specs, dry_run=dry_run)
        noted = Consequences() if dry_run else None
        async with self._database.transaction(context) as connection:
            rest = await self._left_over(connection, context, asked, specs, dry_run=dry_run)
            pruning = Pruning(rest if asked.prune else (), self._edits)
            await pruning.lock_calendars(connection)
            if noted is not None:
                noted.note_calendars(pruning.calendar_namespaces)
            items = await self.apply_specs(connection, context, specs, noted, pruning.jobs)
            items = await stamp(connection, asked, specs, items)
            removed, kept = await pruning.remove(connection, context.audit, noted)
            unowned, capped = list[OwnedRow](), False
            if noted is not None:
                unowned, capped = await find_unowned(connection, specs, context.reach())
                await noted.look_after(connection)
                await connection.rollback()
        items += removed
        if noted is not None:
            items = await noted.told(items, self._clock.now())
        left, nobodys = [] if asked.prune else named(rest), named(_seen(context, unowned))
        return ApplyResult(dry_run, items, kept, left, nobodys, unowned_capped=capped)

    async def apply_specs(
        self,
        connection: Connection,
        context: RequestContext,
        specs: Sequence[Document],
        noted: Consequences | None = None,
        also_locked: Sequence[tuple[str, str]] = (),
    ) -> list[AppliedDocument]:
        """Make the database what the documents say, within a transaction; say what that took, in order.

        `also_locked` are jobs the caller wants to hold too, as (namespace, name).
        """
        # In one order: two applies at once must not wait in a ring.
        in_order = sorted(specs, key=_order)
        items = [
            await _apply_namespace(connection, context.audit, one)
            for one in in_order
            if isinstance(one, NamespaceSpec)
        ]
        if noted is not None:
            await noted.look_before(connection, specs)
        items += await apply_calendars(connection, self._edits, context.audit, specs, noted, also_locked)
        items += await apply_secrets(connection, context, specs, self._secrets)
        items += await apply_webhooks(connection, context.audit, specs, self._webhooks)
        await refuse_unknown_secrets(connection, specs)
        items += await apply_jobs(connection, self._edits, context, in_order, self._clock, noted, also_locked)
        await refuse_bad_calls(connection, specs)
        items += await apply_limits(connection, context.audit, specs)
        place = {
            (spec.kind.value, getattr(spec, "namespace", None), spec.name): n for n, spec in enumerate(specs)
        }
        items.sort(key=lambda item: place[item.kind, item.namespace, item.name])
        return items

    async def _left_over(
        self,
        connection: Connection,
        context: RequestContext,
        asked: ApplyRequest,
        specs: Sequence[Document],
        *,
        dry_run: bool,
    ) -> list[OwnedRow]:
        if asked.owner is None:
            return []
        rest = await left_over(connection, asked.owner, specs, context.reach())
        if dry_run or not asked.prune:
            return _seen(context, rest)
        for row in rest:
            context.require(_NEEDED[row.kind][1], row.namespace)
        return rest

    async def job(self, context: RequestContext, job_id: UUID) -> Job:
        async with self._database.transaction(context) as connection:
            found = await job_store.shown(connection, job_id)
        if found is None or not context.sees(found.namespace):
            raise NotFound("There is no such job.", code="job.not_found")
        return found

    async def list_jobs(
        self,
        context: RequestContext,
        *,
        namespace: str | None,
        name: str | None,
        labels: dict[str, str] | None = None,
        after: tuple[str, str] | None,
        limit: int,
        cap: int,
    ) -> tuple[list[Job], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        namespaces = context.reach(namespace)
        async with self._database.transaction(context, lane=Lane.INDEX_ORDER) as connection:
            jobs = await job_store.list_jobs(
                connection,
                namespaces=namespaces,
                name=name,
                labels=labels,
                after=after,
                limit=limit + 1,
            )
            return jobs, await job_store.count_jobs(
                connection, namespaces=namespaces, name=name, labels=labels, cap=cap + 1
            )


async def _apply_namespace(
    connection: Connection, audit: AuditContext, spec: NamespaceSpec
) -> AppliedDocument:
    before = await namespace_store.upsert(connection, spec)
    document = to_document(spec)
    was = None if before is None else to_document(before)
    fields = [] if was is None else field_changes(was, document)
    action = ApplyAction.CREATED if before is None else ApplyAction.CHANGED
    if before is not None and not fields:
        action = ApplyAction.UNCHANGED
    else:
        audit.note_change("namespace", spec.name, spec.name, before=was, after=document)
    return AppliedDocument(
        *(spec.kind.value, None, spec.name, action),
        changes=[field.path for field in fields],
        fields=fields,
    )


def _seen(context: RequestContext, rows: Sequence[OwnedRow]) -> list[OwnedRow]:
    return [row for row in rows if context.principal.rights.allows(_NEEDED[row.kind][0], row.namespace)]


def check_rights(context: RequestContext, specs: Sequence[Document], *, dry_run: bool) -> None:
    for spec in specs:
        if isinstance(spec, NamespaceSpec):
            # Also to plan: the plan says whether there is one.
            context.principal.needing(Permission.NAMESPACES_WRITE)
            continue
        seeing, writing = _NEEDED[spec.kind]
        # A plan of a secret tells whether its value is the one that is there already.
        seen = dry_run and not isinstance(spec, SecretSpec)
        context.require(seeing if seen else writing, spec.namespace)
        if isinstance(spec, WebhookSpec) or (isinstance(spec, JobSpec) and uses_secrets(spec)):
            context.require(Permission.SECRETS_USE, spec.namespace)
        if isinstance(spec, JobSpec) and spec.schedules and not dry_run:
            context.require(Permission.SCHEDULES_WRITE, spec.namespace)


async def _load(documents: Sequence[dict[str, Any]]) -> list[Document]:
    calendars = any(document.get("kind") == Kind.CALENDAR for document in documents)
    if calendars or len(documents) > _FEW:
        # Holidays take a second to load the first time, and a thousand jobs half of one to read, which nobody
        # else should wait for.
        return await asyncio.to_thread(lambda: load_documents(raw_documents(documents)))
    return load_documents(raw_documents(documents))


def _order(spec: Document) -> tuple[str, str]:
    return getattr(spec, "namespace", ""), spec.name
