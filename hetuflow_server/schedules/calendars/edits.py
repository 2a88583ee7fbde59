"""Edits of calendars: together they must make sense, and a changed calendar restarts its schedules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.jobfile import CalendarSpec, to_document
from hetuflow_core.resources.apply import AppliedDocument, ApplyAction, FieldChange
from hetuflow_server.identity import access_store
from hetuflow_server.jobs import store as job_store
from hetuflow_server.jobs.document_changes import field_changes
from hetuflow_server.jobs.versions import from_row
from hetuflow_server.postgres.database import Connection
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.schedules import store as schedule_store
from hetuflow_server.schedules.calendars import store
from hetuflow_server.schedules.calendars.store import CalendarRow
from hetuflow_server.schedules.consequences import Consequences
from hetuflow_server.schedules.edits import EditedJob, ScheduleEdits


async def write_calendars(
    connection: Connection,
    edits: ScheduleEdits,
    audit: AuditContext,
    placed: Mapping[str, CalendarSpec],
    jobs: Collection[tuple[str, str]] = (),
    noted: Consequences | None = None,
) -> list[AppliedDocument]:
    """Write calendars, by their places in the request; all of them together must make sense.

    Schedules that use one that has changed are decided anew. `jobs` are what the caller locks afterwards, as
    (namespace, name): they are locked together with the others, because there is one order for all.
    """
    items: list[AppliedDocument] = []
    for namespace in sorted({spec.namespace for spec in placed.values()}):
        namespace_id = (await access_store.namespace_ids(connection, [namespace]))[namespace]
        here = {place: spec for place, spec in placed.items() if spec.namespace == namespace}
        # The others too: two edits at once must not make a ring of calendars that each is fine alone.
        known = await store.lock(connection, namespace_id)
        items += [
            await _write(connection, audit, namespace_id, known, spec)
            for spec in sorted(here.values(), key=lambda spec: spec.name)
        ]
        _refuse_bad_parts(here, known)
        changed = [item.name for item in items if item.namespace == namespace and _moves_days(item)]
        await _restart_users(
            connection, edits, namespace_id, dependents(known.values(), changed), jobs, noted
        )
    return items


def _moves_days(item: AppliedDocument) -> bool:
    of_days = [path for path in item.changes if not path.startswith("labels")]
    return item.action is ApplyAction.CHANGED and bool(of_days)


async def _restart_users(
    connection: Connection,
    edits: ScheduleEdits,
    namespace_id: int,
    names: Collection[str],
    jobs: Collection[tuple[str, str]],
    noted: Consequences | None,
) -> None:
    if not names:
        return
    users = await store.users(connection, namespace_id, sorted(names))
    by_job: dict[UUID, set[UUID]] = {}
    for user in users:
        by_job.setdefault(user.job_id, set()).add(user.schedule_id)
    if not by_job:
        return
    for job_id in await store.lock_users(connection, by_job, jobs):
        job = await job_store.lock_job(connection, job_id) if job_id in by_job else None
        if job is not None:
            rows = await schedule_store.lock_of_job(connection, job_id)
            using = [row for row in rows if row.id in by_job[job_id]]
            await edits.restart(connection, EditedJob(from_row(job), job.enabled), using, noted=noted)


def dependents(calendars: Iterable[CalendarRow], names: Collection[str]) -> set[str]:
    """These calendars and all that are put together from them."""
    found, rows = set(names), list(calendars)
    while more := {row.name for row in rows if row.name not in found and found & set(row.parts)}:
        found |= more
    return found


async def _write(
    connection: Connection,
    audit: AuditContext,
    namespace_id: int,
    known: dict[str, CalendarRow],
    spec: CalendarSpec,
) -> AppliedDocument:
    document = to_document(spec)
    before = known.get(spec.name)
    if before is None:
        if not await store.insert(connection, namespace_id, spec.name, spec.labels, document):
            # Another has made it meanwhile.
            known |= await store.lock(connection, namespace_id)
            return await _write(connection, audit, namespace_id, known, spec)
        audit.note_change("calendar", spec.name, spec.namespace, after=document)
        known[spec.name] = CalendarRow(namespace_id, spec.name, 1, document)
        return _applied(spec, ApplyAction.CREATED, 1)
    fields = field_changes(before.spec, document)
    if not fields:
        return _applied(spec, ApplyAction.UNCHANGED, before.version)
    await store.change(connection, before, spec.labels, document)
    audit.note_change("calendar", spec.name, spec.namespace, before=before.spec, after=document)
    known[spec.name] = CalendarRow(namespace_id, spec.name, before.version + 1, document)
    return _applied(spec, ApplyAction.CHANGED, before.version + 1, fields)


def _applied(
    spec: CalendarSpec, action: ApplyAction, version: int, fields: Sequence[FieldChange] = ()
) -> AppliedDocument:
    return AppliedDocument(
        *(spec.kind.value, spec.namespace, spec.name, action, version),
        changes=[field.path for field in fields],
        fields=list(fields),
    )


def _refuse_bad_parts(placed: Mapping[str, CalendarSpec], known: Mapping[str, CalendarRow]) -> None:
    faults = []
    for place, spec in placed.items():
        missing = [part for part in spec.calendars if part not in known]
        if missing:
            message = f"the namespace {spec.namespace} has no calendar {missing[0]}: define it first."
            faults.append(Fault(f"{place}calendars", message))
        elif spec.name in _reached(known, spec.calendars):
            message = "the calendar would be a part of itself through others: take one of them out."
            faults.append(Fault(f"{place}calendars", message))
    if faults:
        raise Invalid("Calendars cannot be put together.", code="calendar.bad_parts", faults=faults)


def _reached(known: Mapping[str, CalendarRow], names: Iterable[str]) -> set[str]:
    """Everything these calendars are put together from, themselves included."""
    reached: set[str] = set()
    ahead = list(names)
    while ahead:
        name = ahead.pop()
        if name not in reached and name in known:
            reached.add(name)
            ahead += known[name].parts
    return reached
