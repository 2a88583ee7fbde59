"""Single jobs: create one that must not exist, change one that must, look at how it was before."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hetuflow_core.errors import Conflict, Fault, Invalid, NotFound
from hetuflow_core.jobfile import from_document
from hetuflow_core.resources.jobs import Job, JobVersionSummary
from hetuflow_server.apply.documents import DocumentApplier, check_rights
from hetuflow_server.http.entity_tags import refuse_stale
from hetuflow_server.identity import access_store
from hetuflow_server.jobs import store as job_store
from hetuflow_server.jobs.document_changes import merged
from hetuflow_server.postgres.database import Database
from hetuflow_server.requests.context import RequestContext

# What a job is known by, which no change of it touches.
_IDENTITY = ("kind", "namespace", "name")


class JobEdits:
    def __init__(self, database: Database, document_applier: DocumentApplier) -> None:
        self._database = database
        self._document_applier = document_applier

    async def create(self, context: RequestContext, document: dict[str, Any]) -> Job:
        spec = from_document(document)
        check_rights(context, [spec], dry_run=False)
        async with self._database.transaction(context) as connection:
            namespace_id = (await access_store.namespace_ids(connection, [spec.namespace]))[spec.namespace]
            if await job_store.job_by_name(connection, namespace_id, spec.name) is not None:
                raise Conflict(
                    f"There is a job {spec.namespace}/{spec.name} already: change it, or take another name.",
                    code="job.exists",
                )
            await self._document_applier.apply_specs(connection, context, [spec])
            created = await job_store.list_jobs(
                connection, namespaces=[spec.namespace], name=spec.name, limit=1
            )
        return created[0]

    async def change(
        self, context: RequestContext, job_id: UUID, changes: dict[str, Any], if_match: str | None
    ) -> Job:
        """Merge `changes` into a job's document; null takes a key back to its default."""
        async with self._database.transaction(context) as connection:
            await job_store.lock_job(connection, job_id)
            found = await job_store.shown(connection, job_id)
            if found is None or not context.sees(found.namespace):
                raise _no_job()
            refuse_stale(found, if_match)
            _refuse_another(found, changes)
            spec = from_document(merged(found.spec, changes))
            check_rights(context, [spec], dry_run=False)
            await self._document_applier.apply_specs(connection, context, [spec])
            changed = await job_store.shown(connection, job_id)
            if changed is None:
                raise _no_job()
            return changed

    async def versions(
        self, context: RequestContext, job_id: UUID, *, before: int | None, limit: int
    ) -> tuple[list[JobVersionSummary], int]:
        """Return a job's versions, newest first: one more than `limit` when there are more, and how many."""
        await self._document_applier.job(context, job_id)
        async with self._database.transaction(context) as connection:
            return await job_store.versions(connection, job_id, before=before, limit=limit + 1)


def _refuse_another(job: Job, changes: dict[str, Any]) -> None:
    known = {"kind": "job", "namespace": job.namespace, "name": job.name}
    faults = [
        Fault(key, f"is {known[key]} and cannot be changed")
        for key in _IDENTITY
        if key in changes and changes[key] != known[key]
    ]
    if faults:
        raise Invalid("A job cannot become another: create a new one.", faults=faults)


def _no_job() -> NotFound:
    return NotFound("There is no such job.", code="job.not_found")
