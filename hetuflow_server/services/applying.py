"""Applying documents: all together or not at all, and nothing when nothing differs."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from hetuflow_core import ids, placement
from hetuflow_core.errors import Denied, NotFound
from hetuflow_core.jobfile import (
    Document,
    JobSpec,
    NamespaceSpec,
    digest,
    from_document,
    load_documents,
    raw_documents,
    to_document,
)
from hetuflow_core.resources import AppliedDocument, ApplyAction, ApplyResult, Job
from hetuflow_core.roles import Role
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.services.access import Principal
from hetuflow_server.store import access as access_store, jobs as job_store
from hetuflow_server.store.database import Connection, Database
from hetuflow_server.store.jobs import JobRow


class Applying:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def apply(
        self,
        principal: Principal,
        documents: Sequence[dict[str, Any]],
        *,
        dry_run: bool,
    ) -> ApplyResult:
        specs = load_documents(raw_documents(documents))
        async with self._database.transaction() as connection:
            # Namespaces first, and in one order: two applies at once must not wait in a ring.
            items = [await self._apply_one(connection, principal, one) for one in sorted(specs, key=_order)]
            if dry_run:
                await connection.rollback()
        place = {
            (spec.kind.value, getattr(spec, "namespace", None), spec.name): n for n, spec in enumerate(specs)
        }
        items.sort(key=lambda item: place[item.kind, item.namespace, item.name])
        return ApplyResult(dry_run, items)

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
        after: tuple[str, str] | None,
        limit: int,
        cap: int,
    ) -> tuple[list[Job], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        if principal.namespace is not None:
            if namespace not in {None, principal.namespace}:
                return [], 0
            namespace = principal.namespace
        async with self._database.transaction() as connection:
            jobs = await job_store.list_jobs(
                connection,
                namespace=namespace,
                name=name,
                after=after,
                limit=limit + 1,
            )
            return jobs, await job_store.count_jobs(connection, namespace, name, cap + 1)

    async def _apply_one(
        self,
        connection: Connection,
        principal: Principal,
        spec: Document,
    ) -> AppliedDocument:
        match spec:
            case NamespaceSpec():
                return await self._apply_namespace(connection, principal, spec)
            case JobSpec():
                return await self._apply_job(connection, principal, spec)

    async def _apply_namespace(
        self,
        connection: Connection,
        principal: Principal,
        spec: NamespaceSpec,
    ) -> AppliedDocument:
        if principal.namespace is not None or not principal.role.allows(Role.ADMIN):
            raise Denied("Namespaces are made and changed with an admin's key for all namespaces.")
        created, changed = await job_store.upsert_namespace(connection, spec.name, spec.weight, spec.labels)
        action = ApplyAction.UNCHANGED
        if created or changed:
            action = ApplyAction.CREATED if created else ApplyAction.CHANGED
        return AppliedDocument(spec.kind.value, None, spec.name, action)

    async def _apply_job(
        self,
        connection: Connection,
        principal: Principal,
        spec: JobSpec,
    ) -> AppliedDocument:
        principal.require_namespace(spec.namespace)
        namespace_id = (await access_store.namespace_ids(connection, [spec.namespace]))[spec.namespace]
        known = await job_store.job_by_name(connection, namespace_id, spec.name)
        document, new_digest = to_document(spec), digest(spec)

        def done(action: ApplyAction, version: int, changes: list[str] | None = None) -> AppliedDocument:
            return AppliedDocument(
                spec.kind.value,
                spec.namespace,
                spec.name,
                action,
                version,
                changes or [],
            )

        if known is not None and from_document(known.spec) == spec:
            return done(ApplyAction.UNCHANGED, known.version)
        row = JobRow(
            id=known.id if known else ids.new_id(self._clock.now(), secrets.token_bytes(10)),
            namespace_id=namespace_id,
            namespace=spec.namespace,
            name=spec.name,
            enabled=True,
            version=known.version + 1 if known else 1,
            digest=new_digest,
            placement_id=await self._placement(connection, spec),
            spec=document,
        )
        if known is None:
            await job_store.insert_job(connection, row, spec.labels, principal.name)
            return done(ApplyAction.CREATED, row.version)
        await job_store.change_job(connection, row, spec.labels, principal.name)
        return done(ApplyAction.CHANGED, row.version, differences(known.spec, document))

    async def _placement(self, connection: Connection, spec: JobSpec) -> int:
        return await job_store.intern_placement(
            connection,
            placement.digest(spec.placement, spec.limits),
            placement.canonical_requirements(spec.placement),
            sorted(spec.limits),
        )


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the paths at which two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            difference
            for key in sorted(before.keys() | after.keys())
            for difference in differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
        ]
    return [] if before == after else [path]


def _order(spec: Document) -> tuple[bool, str, str]:
    return isinstance(spec, JobSpec), getattr(spec, "namespace", ""), spec.name
