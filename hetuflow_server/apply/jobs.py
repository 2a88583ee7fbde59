"""Applying jobs: however many there are, a fixed number of statements."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.jobfile import Document, JobSpec, digest, from_document, to_document
from hetuflow_core.limits import job_scope
from hetuflow_core.resources.apply import AppliedDocument, AppliedSchedule, ApplyAction, FieldChange
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.identity import access_store
from hetuflow_server.jobs import store as job_store
from hetuflow_server.jobs.document_changes import field_changes
from hetuflow_server.jobs.store import JobRow, NewVersion
from hetuflow_server.jobs.versions import JobVersion
from hetuflow_server.placement import store as placement_store
from hetuflow_server.postgres.database import Connection
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules.consequences import Consequences
from hetuflow_server.schedules.edits import EditedJob, ScheduleEdits, WantedSchedules


@dataclass(frozen=True, slots=True)
class _Applied:
    """A job that is made what its document says."""

    spec: JobSpec
    known: JobRow | None
    row: JobRow

    @property
    def same(self) -> bool:
        """Whether it is no new version; its schedules may differ all the same."""
        return self.known is not None and self.known.version == self.row.version

    @property
    def edited(self) -> EditedJob:
        row = self.row
        version = JobVersion(
            *(row.id, row.version, row.namespace_id, row.namespace, row.name, row.enabled),
            placement_id=row.placement_id,
            spec=self.spec.without_schedules(),
        )
        return EditedJob(version, row.enabled)


async def apply_jobs(
    connection: Connection,
    edits: ScheduleEdits,
    context: RequestContext,
    specs: Sequence[Document],
    clock: Clock,
    noted: Consequences | None,
    also_locked: Sequence[tuple[str, str]] = (),
) -> list[AppliedDocument]:
    """Write the jobs of these documents with their schedules; hold others too, as (namespace, name)."""
    wanted = [spec for spec in specs if isinstance(spec, JobSpec)]
    if not wanted:
        return []
    jobs = await _rows(connection, wanted, clock, also_locked)
    new = [NewVersion.of(job.row, job.spec.labels) for job in jobs if job.known is None]
    changed = [NewVersion.of(job.row, job.spec.labels) for job in jobs if job.known and not job.same]
    await job_store.insert_jobs(connection, new, context.principal.name)
    await job_store.change_jobs(connection, changed, context.principal.name)
    schedules = await edits.apply(
        connection,
        [WantedSchedules(job.edited, job.spec.schedules, new_version=not job.same) for job in jobs],
        noted,
    )
    if noted is not None:
        for job in jobs:
            if job.known is not None and not job.same:
                noted.note_job(job.spec.namespace, job.spec.name, job.row.id)
    return [_told(context.audit, job, these) for job, these in zip(jobs, schedules, strict=True)]


async def _rows(
    connection: Connection, specs: Sequence[JobSpec], clock: Clock, also_locked: Sequence[tuple[str, str]]
) -> list[_Applied]:
    named = [*((spec.namespace, spec.name) for spec in specs), *also_locked]
    namespaces = await access_store.namespace_ids(connection, sorted({namespace for namespace, _ in named}))
    known = await job_store.lock_named(
        connection, [(namespaces[namespace], name) for namespace, name in named]
    )
    jobs = []
    for spec in specs:
        namespace_id = namespaces[spec.namespace]
        before = known.get((namespace_id, spec.name))
        jobs.append(_Applied(spec, before, _row(spec, before, namespace_id, clock)))
    # The class of what is no new version is known: nothing of it has changed.
    new = [job for job in jobs if not job.same]
    classes = await placement_store.intern_all(
        connection, [(job.spec.requirements, _scopes(job.spec, job.row.id)) for job in new]
    )
    placed = {job.row.id: class_id for job, class_id in zip(new, classes, strict=True)}
    return [
        replace(job, row=replace(job.row, placement_id=placed.get(job.row.id, job.row.placement_id)))
        for job in jobs
    ]


def _row(spec: JobSpec, known: JobRow | None, namespace_id: int, clock: Clock) -> JobRow:
    body = spec.without_schedules()
    new = digest(body)
    # What was stored with other defaults has another digest and may be the same job.
    same = known is not None and (known.digest == new or from_document(known.spec) == body)
    if known is not None and same:
        return known
    return JobRow(
        id=known.id if known else ids.new_id(clock.now(), secrets.token_bytes(10)),
        namespace_id=namespace_id,
        namespace=spec.namespace,
        name=spec.name,
        enabled=known.enabled if known else True,
        version=known.version + 1 if known else 1,
        digest=new,
        placement_id=0,
        spec=to_document(body),
    )


def _scopes(spec: JobSpec, job_id: UUID) -> list[str]:
    """The limits of the job's class; what a key limits is a matter of each instance."""
    own = spec.concurrency.max is not None and spec.concurrency.key is None
    return [*spec.limits, job_scope(job_id)] if own else list(spec.limits)


def _told(audit: AuditContext, job: _Applied, schedules: list[AppliedSchedule]) -> AppliedDocument:
    spec, known = job.spec, job.known
    edited = [one for one in schedules if one.action is not ApplyAction.UNCHANGED]
    action = ApplyAction.CREATED if known is None else ApplyAction.CHANGED
    if job.same and not edited:
        action = ApplyAction.UNCHANGED
    else:
        before = None if known is None else known.spec
        audit.note_change("job", spec.name, spec.namespace, before=before, after=to_document(spec))
    fields: list[FieldChange] = []
    changes: list[str] = []
    if known is not None:
        fields = [] if job.same else field_changes(known.spec, job.row.spec)
        changes = [*(field.path for field in fields), *(f"schedules.{one.name}" for one in edited)]
    return AppliedDocument(
        *(spec.kind.value, spec.namespace, spec.name, action, job.row.version),
        changes=changes,
        schedules=schedules,
        fields=fields,
    )
