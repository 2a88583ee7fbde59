"""What people do with schedules and with jobs that have them: look, add, change, pause, resume, delete."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

from hetuflow_core.errors import Conflict, NotFound
from hetuflow_core.fields import shape_of
from hetuflow_core.jobfile import schedule_document, schedule_from_document
from hetuflow_core.resources.schedules import Schedule
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_server.http.entity_tags import refuse_stale
from hetuflow_server.jobs import store as job_store
from hetuflow_server.jobs.store import JobRow
from hetuflow_server.jobs.versions import from_row
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules import store
from hetuflow_server.schedules.calendars.references import refuse_undefined_calendars
from hetuflow_server.schedules.edits import EditedJob, ScheduleEdits
from hetuflow_server.schedules.store import ScheduleFilter, ScheduleRow
from hetuflow_server.schedules.upstream_references import refuse_unknown_upstreams


class Schedules:
    def __init__(self, database: Database, edits: ScheduleEdits) -> None:
        self._database = database
        self._edits = edits

    async def schedule(self, context: RequestContext, schedule_id: UUID) -> Schedule:
        async with self._database.transaction(context) as connection:
            found = await store.shown(connection, schedule_id)
        if found is None or not context.sees(found.namespace):
            raise _no_schedule()
        return found

    async def list_schedules(
        self,
        context: RequestContext,
        wanted: ScheduleFilter,
        *,
        after: tuple[str, str, str] | None,
        limit: int,
        cap: int,
    ) -> tuple[list[Schedule], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        wanted = replace(wanted, namespaces=context.reach(wanted.namespace))
        async with self._database.transaction(context) as connection:
            found = await store.listed(connection, wanted, after=after, limit=limit + 1)
            return found, await store.count(connection, wanted, cap + 1)

    async def add(self, context: RequestContext, job_id: UUID, document: dict[str, Any]) -> Schedule:
        """Give a job another schedule."""
        spec = schedule_from_document(document, path="spec")
        async with self._editing(context, job_id) as (connection, job, rows):
            if any(row.name == spec.name for row in rows):
                raise Conflict(
                    f"The job {job.name} has a schedule {spec.name} already: rename one, or change it.",
                    code="schedule.exists",
                )
            await _check_calendars(connection, job, spec, "spec.calendar")
            added = await self._edits.add(connection, _edited(job), spec)
            context.audit.note_change(
                "schedule", f"{job.name}/{spec.name}", job.namespace, after=schedule_document(spec)
            )
        return await self.schedule(context, added)

    async def change(
        self,
        context: RequestContext,
        schedule_id: UUID,
        changes: dict[str, Any],
        *,
        if_match: str | None = None,
    ) -> Schedule:
        """Merge `changes` into a schedule's document; null takes a key back to its default."""
        found = await self.schedule(context, schedule_id)
        async with self._editing(context, found.job_id) as (connection, job, rows):
            row = _among(rows, schedule_id)
            if if_match is not None and (shown := await store.shown(connection, schedule_id)):
                refuse_stale(shown, if_match)
            spec = schedule_from_document(_merged(row.spec, changes))
            if any(other.name == spec.name and other.id != row.id for other in rows):
                raise Conflict(
                    f"The job {job.name} has a schedule {spec.name} already: choose another name.",
                    code="schedule.exists",
                )
            await _check_calendars(connection, job, spec, "calendar")
            await self._edits.rewrite(connection, _edited(job), row, spec)
            named = f"{job.name}/{row.name}"
            context.audit.note_change(
                "schedule", named, job.namespace, before=row.spec, after=schedule_document(spec)
            )
        return await self.schedule(context, schedule_id)

    async def enable(self, context: RequestContext, schedule_id: UUID, *, enabled: bool) -> Schedule:
        """Resume or pause; what is so already is left as it is."""
        found = await self.schedule(context, schedule_id)
        async with self._editing(context, found.job_id) as (connection, job, rows):
            row = _among(rows, schedule_id)
            _note_enabled(
                context.audit,
                "schedule",
                f"{job.name}/{row.name}",
                job.namespace,
                was=row.enabled,
                enabled=enabled,
            )
            if row.enabled is not enabled:
                await self._edits.restart(connection, _edited(job), [row], enabled=enabled)
        return await self.schedule(context, schedule_id)

    async def delete(self, context: RequestContext, schedule_id: UUID) -> None:
        found = await self.schedule(context, schedule_id)
        async with self._editing(context, found.job_id) as (connection, job, rows):
            row = _among(rows, schedule_id)
            context.audit.note_change("schedule", f"{job.name}/{row.name}", job.namespace, before=row.spec)
            await self._edits.remove(connection, [(_edited(job), row)])

    async def enable_job(self, context: RequestContext, job_id: UUID, *, enabled: bool) -> None:
        """Let a job's schedules fire and people run it, or neither; what exists goes on either way."""
        async with self._editing(context, job_id) as (connection, job, rows):
            _note_enabled(context.audit, "job", job.name, job.namespace, was=job.enabled, enabled=enabled)
            if job.enabled is not enabled:
                await job_store.enable_job(connection, job.id, enabled=enabled)
                await self._edits.restart(connection, _edited(job, enabled=enabled), rows)

    async def delete_job(self, context: RequestContext, job_id: UUID) -> None:
        """Delete a job and its schedules; what has been started, or waits, goes on."""
        async with self._editing(context, job_id) as (connection, job, rows):
            await self._edits.remove(connection, [(_edited(job), row) for row in rows])
            await job_store.delete_job(connection, job.id)
            context.audit.note_change("job", job.name, job.namespace, before=job.spec)

    @asynccontextmanager
    async def _editing(
        self, context: RequestContext, job_id: UUID
    ) -> AsyncIterator[tuple[Connection, JobRow, list[ScheduleRow]]]:
        """Hold a job and then its schedules."""
        async with self._database.transaction(context) as connection:
            job = await job_store.lock_job(connection, job_id)
            if job is None or not context.sees(job.namespace):
                raise NotFound("There is no such job.", code="job.not_found")
            yield connection, job, await store.lock_of_job(connection, job_id)


async def _check_calendars(connection: Connection, job: JobRow, spec: ScheduleSpec, path: str) -> None:
    await refuse_undefined_calendars(connection, job.namespace_id, job.namespace, spec, path)
    await refuse_unknown_upstreams(connection, job.namespace_id, job.name, spec, path)


def _note_enabled(
    audit: AuditContext, kind: str, target: str, namespace: str, *, was: bool, enabled: bool
) -> None:
    audit.note_change(kind, target, namespace, before={"enabled": was}, after={"enabled": enabled})


def _edited(job: JobRow, *, enabled: bool | None = None) -> EditedJob:
    return EditedJob(from_row(job), job.enabled if enabled is None else enabled)


def _among(rows: list[ScheduleRow], schedule_id: UUID) -> ScheduleRow:
    for row in rows:
        if row.id == schedule_id:
            return row
    raise _no_schedule()  # deleted meanwhile


_TRIGGERS = ("cron", "every", "at", "daemon", "event", "flow")
# Not every trigger has them; what a changed trigger does not take is not carried over.
_OF_TRIGGERS = {
    "cron": ("dst", "start_at", "end_at", "max_count"),
    "every": ("start_at", "end_at", "max_count"),
    "event": ("start_at", "end_at"),
}


def _merged(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A JSON merge patch. Another trigger takes the place of the one there was, with what belongs to that."""
    kept, allowed = dict(document), shape_of(ScheduleSpec).beside
    new = next((key for key in _TRIGGERS if changes.get(key) is not None), None)
    old = next((key for key in _TRIGGERS if kept.get(key) is not None), None)
    if new is not None and new != old:
        if {"daemon", "flow"} & {new, old}:
            kept = {key: value for key, value in kept.items() if key in allowed("daemon")}
        if "event" in {new, old}:
            kept = {key: value for key, value in kept.items() if key in allowed("event")}
        for key in (*_TRIGGERS, *({"dst", "start_at", "end_at", "max_count"} - {*_OF_TRIGGERS.get(new, ())})):
            kept.pop(key, None)
    for key, value in changes.items():
        before = kept.get(key)
        if value is None:
            kept.pop(key, None)
        elif isinstance(value, dict) and isinstance(before, dict):
            kept[key] = {name: one for name, one in {**before, **value}.items() if one is not None}
        else:
            kept[key] = value
    return kept


def _no_schedule() -> NotFound:
    return NotFound("There is no such schedule.", code="schedule.not_found")
