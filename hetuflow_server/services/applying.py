"""Applying documents: all together or not at all, and nothing when nothing differs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.errors import NotFound
from hetuflow_core.jobfile import (
    Document,
    JobSpec,
    Kind,
    NamespaceSpec,
    SecretSpec,
    WebhookSpec,
    digest,
    from_document,
    load_documents,
    raw_documents,
    to_document,
)
from hetuflow_core.limits import job_scope
from hetuflow_core.permissions import Permission
from hetuflow_core.resources import AppliedDocument, ApplyAction, ApplyResult, Job
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.services.apply_calendars import apply_calendars
from hetuflow_server.services.apply_flows import refuse_bad_calls
from hetuflow_server.services.apply_limits import apply_limits
from hetuflow_server.services.apply_secrets import apply_secrets, refuse_unknown_secrets, uses_secrets
from hetuflow_server.services.job_versions import from_row
from hetuflow_server.services.json_paths import differences
from hetuflow_server.services.principals import Principal
from hetuflow_server.services.schedule_edits import EditedJob, apply_schedules
from hetuflow_server.services.secrets import Secrets
from hetuflow_server.services.webhooks import Webhooks, apply_webhooks
from hetuflow_server.store import access as access_store, jobs as job_store, placements
from hetuflow_server.store.database import Connection, Database
from hetuflow_server.store.deeds import note_change
from hetuflow_server.store.jobs import JobRow

# kind → what seeing it and what writing it needs.
_NEEDED: Final = {
    Kind.JOB: (Permission.JOBS_READ, Permission.JOBS_WRITE),
    Kind.CALENDAR: (Permission.CALENDARS_READ, Permission.CALENDARS_WRITE),
    Kind.LIMIT: (Permission.LIMITS_READ, Permission.LIMITS_WRITE),
    Kind.SECRET: (Permission.SECRETS_READ, Permission.SECRETS_WRITE),
    Kind.WEBHOOK: (Permission.WEBHOOKS_READ, Permission.WEBHOOKS_WRITE),
}


class Applying:
    def __init__(
        self,
        database: Database,
        clock: Clock,
        secrets: Secrets | None = None,
        webhooks: Webhooks | None = None,
    ) -> None:
        """`secrets` and `webhooks`: who writes those; without, documents of that kind are refused."""
        self._database = database
        self._clock = clock
        self._secrets = secrets
        self._webhooks = webhooks

    async def apply(
        self,
        principal: Principal,
        documents: Sequence[dict[str, Any]],
        *,
        dry_run: bool,
    ) -> ApplyResult:
        specs = await _load(documents)
        check_rights(principal, specs, dry_run=dry_run)
        async with self._database.transaction() as connection:
            items = await self.apply_specs(connection, principal, specs)
            if dry_run:
                await connection.rollback()
        return ApplyResult(dry_run, items)

    async def apply_specs(
        self, connection: Connection, principal: Principal, specs: Sequence[Document]
    ) -> list[AppliedDocument]:
        """Make the database what the documents say, within a transaction; say what that took, in order."""
        # In one order: two applies at once must not wait in a ring.
        in_order = sorted(specs, key=_order)
        items = [
            await self._apply_namespace(connection, one) for one in in_order if isinstance(one, NamespaceSpec)
        ]
        items += await apply_calendars(connection, specs)
        items += await apply_secrets(connection, specs, self._secrets, principal.name)
        items += await apply_webhooks(connection, specs, self._webhooks)
        await refuse_unknown_secrets(connection, specs)
        items += [
            await self._apply_job(connection, principal, one) for one in in_order if isinstance(one, JobSpec)
        ]
        await refuse_bad_calls(connection, specs)
        items += await apply_limits(connection, specs)
        place = {
            (spec.kind.value, getattr(spec, "namespace", None), spec.name): n for n, spec in enumerate(specs)
        }
        items.sort(key=lambda item: place[item.kind, item.namespace, item.name])
        return items

    async def job(self, principal: Principal, job_id: UUID) -> Job:
        async with self._database.transaction() as connection:
            found = await job_store.list_jobs(connection, id_=job_id, limit=1)
        if not found or not principal.sees(found[0].namespace):
            raise NotFound("There is no such job.", code="job.not_found")
        return found[0]

    async def list_jobs(
        self,
        principal: Principal,
        *,
        namespace: str | None,
        name: str | None,
        labels: dict[str, str] | None = None,
        after: tuple[str, str] | None,
        limit: int,
        cap: int,
    ) -> tuple[list[Job], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        namespaces = principal.reach(namespace)
        async with self._database.transaction() as connection:
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
        self,
        connection: Connection,
        spec: NamespaceSpec,
    ) -> AppliedDocument:
        created, changed = await job_store.upsert_namespace(connection, spec.name, spec.weight, spec.labels)
        action = ApplyAction.UNCHANGED
        if created or changed:
            action = ApplyAction.CREATED if created else ApplyAction.CHANGED
        if action is not ApplyAction.UNCHANGED:
            note_change("namespace", spec.name, spec.name, after=to_document(spec))
        return AppliedDocument(spec.kind.value, None, spec.name, action)

    async def _apply_job(
        self,
        connection: Connection,
        principal: Principal,
        spec: JobSpec,
    ) -> AppliedDocument:
        namespace_id = (await access_store.namespace_ids(connection, [spec.namespace]))[spec.namespace]
        known = await job_store.job_by_name(connection, namespace_id, spec.name)
        body = spec.without_schedules()
        document = to_document(body)
        changes = [] if known is None else differences(known.spec, document)
        same = known is not None and from_document(known.spec) == body
        job_id = known.id if known else ids.new_id(self._clock.now(), secrets.token_bytes(10))
        row = JobRow(
            id=job_id,
            namespace_id=namespace_id,
            namespace=spec.namespace,
            name=spec.name,
            enabled=known.enabled if known else True,
            version=known.version + (not same) if known else 1,
            digest=digest(body),
            placement_id=known.placement_id
            if known and same
            else await placements.intern(connection, spec.requirements, _scopes(spec, job_id)),
            spec=document,
        )
        if known is None:
            await job_store.insert_job(connection, row, spec.labels, principal.name)
        elif not same:
            await job_store.change_job(connection, row, spec.labels, principal.name)
        schedules = await apply_schedules(
            connection, EditedJob(from_row(row), row.enabled), spec.schedules, new_version=not same
        )
        edited = [one for one in schedules if one.action is not ApplyAction.UNCHANGED]
        action = ApplyAction.CREATED if known is None else ApplyAction.CHANGED
        if same and not edited:
            action, changes = ApplyAction.UNCHANGED, []
        if action is not ApplyAction.UNCHANGED:
            before = None if known is None else known.spec
            note_change("job", spec.name, spec.namespace, before=before, after=to_document(spec))
        if known is not None:
            changes = [*changes, *(f"schedules.{one.name}" for one in edited)]
        return AppliedDocument(
            spec.kind.value, spec.namespace, spec.name, action, row.version, changes, schedules
        )


def _scopes(spec: JobSpec, job_id: UUID) -> list[str]:
    """The limits of the job's class; what a key limits is a matter of each instance."""
    own = spec.concurrency.max is not None and spec.concurrency.key is None
    return [*spec.limits, job_scope(job_id)] if own else list(spec.limits)


def check_rights(principal: Principal, specs: Sequence[Document], *, dry_run: bool) -> None:
    for spec in specs:
        if isinstance(spec, NamespaceSpec):
            # Also to plan: the plan says whether there is one.
            principal.needing(Permission.NAMESPACES_WRITE)
            continue
        seeing, writing = _NEEDED[spec.kind]
        # A plan of a secret tells whether its value is the one that is there already.
        seen = dry_run and not isinstance(spec, SecretSpec)
        principal.require(seeing if seen else writing, spec.namespace)
        if isinstance(spec, WebhookSpec) or (isinstance(spec, JobSpec) and uses_secrets(spec)):
            principal.require(Permission.SECRETS_USE, spec.namespace)
        if isinstance(spec, JobSpec) and spec.schedules and not dry_run:
            principal.require(Permission.SCHEDULES_WRITE, spec.namespace)


async def _load(documents: Sequence[dict[str, Any]]) -> list[Document]:
    if any(document.get("kind") == Kind.CALENDAR for document in documents):
        # Holidays take a second to load the first time, which nobody else should wait for.
        return await asyncio.to_thread(lambda: load_documents(raw_documents(documents)))
    return load_documents(raw_documents(documents))


def _order(spec: Document) -> tuple[str, str]:
    return getattr(spec, "namespace", ""), spec.name
