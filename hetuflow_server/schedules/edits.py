"""Edits of schedules: they take back what has not happened yet, and let everything else be.

Whoever edits holds the job's row first, then its schedules by id. Fires that are in the future, were never
attempted and are in nobody's hands are deleted with their tasks; the schedule gets a new version and starts
over from now. The generator compares version and cursor, so that it fires the old schedule or the new one
and nothing in between.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.jobfile import schedule_document, schedule_from_document
from hetuflow_core.jobfile.job_rules import FLOWS_END
from hetuflow_core.resources.apply import AppliedSchedule, ApplyAction
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_core.schedule.planning import first_fire
from hetuflow_core.states import ScheduleKind
from hetuflow_server.jobs.document_changes import field_changes
from hetuflow_server.jobs.versions import JobVersion
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Connection
from hetuflow_server.schedules import store
from hetuflow_server.schedules.calendars.resolved import load_calendars
from hetuflow_server.schedules.consequences import Consequences, ScheduleEdit, SchedulePlan
from hetuflow_server.schedules.store import NewSchedule, ScheduleChange, ScheduleRow
from hetuflow_server.schedules.stored_specs import fires_of


@dataclass(frozen=True, slots=True)
class EditedJob:
    """The job whose schedules are edited; the caller has locked it."""

    version: JobVersion
    enabled: bool

    @property
    def id(self) -> UUID:
        return self.version.job_id

    @property
    def namespace_id(self) -> int:
        return self.version.namespace_id


@dataclass(frozen=True, slots=True)
class WantedSchedules:
    """What a job's file says about its schedules."""

    job: EditedJob
    specs: Sequence[ScheduleSpec]
    # With a new version of the job all of them start over.
    new_version: bool


@dataclass(frozen=True, slots=True)
class WrittenSchedule:
    """A schedule that an edit has inserted or changed; the caller has locked it."""

    id: UUID
    namespace_id: int
    document: Mapping[str, Any]
    spec: ScheduleSpec
    # Whether the schedule and its job are enabled.
    fires: bool
    # The row before the edit; None for a new schedule.
    before: ScheduleRow | None = None


@dataclass(frozen=True, slots=True)
class _Edit:
    """What a locked schedule is to become."""

    job: EditedJob
    row: ScheduleRow
    document: dict[str, Any]
    enabled: bool


class EditHook(Protocol):
    """What another subject does in the transaction of an edit."""

    async def on_written(
        self, connection: Connection, schedules: Sequence[WrittenSchedule], now: datetime
    ) -> None: ...

    async def on_removed(self, connection: Connection, schedules: Sequence[ScheduleRow]) -> None: ...


class ScheduleEdits:
    """The edits of schedules; `hooks` take part in each of them, in their order."""

    def __init__(self, hooks: Sequence[EditHook]) -> None:
        self._hooks = hooks

    async def apply(
        self, connection: Connection, wanted: Sequence[WantedSchedules], noted: Consequences | None = None
    ) -> list[list[AppliedSchedule]]:
        """Make the schedules of locked jobs what their files say; return what that took, job by job."""
        for one in wanted:
            _check_params(one.job, [(f"schedules[{place}]", spec) for place, spec in enumerate(one.specs)])
        known = await store.lock_of_jobs(connection, [one.job.id for one in wanted])
        edits: list[_Edit] = []
        gone: list[tuple[EditedJob, ScheduleRow]] = []
        new: list[tuple[EditedJob, ScheduleSpec]] = []
        applied = []
        for one in wanted:
            rows = {row.name: row for row in known.get(one.job.id, ())}
            documents = {spec.name: schedule_document(spec) for spec in one.specs}
            edits += [
                _Edit(one.job, row, documents[name], _enabled(row, documents[name]))
                for name, row in rows.items()
                if name in documents and (one.new_version or documents[name] != row.spec)
            ]
            gone += [(one.job, row) for name, row in rows.items() if name not in documents]
            new += [(one.job, spec) for spec in one.specs if spec.name not in rows]
            applied.append(_all_applied(rows, documents))
        await self._write(connection, edits, noted)
        await self.remove(connection, gone, noted)
        await self._insert(connection, new, noted)
        return applied

    async def restart(
        self,
        connection: Connection,
        job: EditedJob,
        rows: Sequence[ScheduleRow],
        *,
        enabled: bool | None = None,
        noted: Consequences | None = None,
    ) -> None:
        """Start locked schedules over from now, enabled or disabled if that is said."""
        edits = [_Edit(job, row, row.spec, row.enabled if enabled is None else enabled) for row in rows]
        await self._write(connection, edits, noted)

    async def rewrite(
        self, connection: Connection, job: EditedJob, row: ScheduleRow, spec: ScheduleSpec
    ) -> None:
        """Give a locked schedule another spec."""
        _check_params(job, [("", spec)])
        document = schedule_document(spec)
        await self._write(connection, [_Edit(job, row, document, _enabled(row, document))])

    async def add(self, connection: Connection, job: EditedJob, spec: ScheduleSpec) -> UUID:
        _check_params(job, [("spec", spec)])
        return (await self._insert(connection, [(job, spec)]))[0]

    async def remove(
        self,
        connection: Connection,
        rows: Sequence[tuple[EditedJob, ScheduleRow]],
        noted: Consequences | None = None,
    ) -> None:
        """Delete locked schedules; what they have fired stays, and so does what waits for its turn."""
        if not rows:
            return
        gone, now = [row.id for _, row in rows], await database_time(connection)
        withdrawn = await store.withdraw(connection, gone, now)
        await store.remove(connection, gone, now)
        for hook in self._hooks:
            await hook.on_removed(connection, [row for _, row in rows])
        if noted is not None:
            for job, row in rows:
                noted.note(_noted(job, row, _course_before(job, row), None, withdrawn.get(row.id, 0)))

    async def _write(
        self, connection: Connection, edits: Sequence[_Edit], noted: Consequences | None = None
    ) -> None:
        if not edits:
            return
        now = await database_time(connection)
        withdrawn = await store.withdraw(connection, [edit.row.id for edit in edits], now)
        specs = {edit.row.id: schedule_from_document(edit.document) for edit in edits}
        calendars = await load_calendars(
            connection, [(edit.job.namespace_id, specs[edit.row.id]) for edit in edits]
        )
        changes = []
        for edit in edits:
            row, spec = edit.row, specs[edit.row.id]
            fired = max(0, row.fired_count - withdrawn.get(row.id, 0))
            fires = edit.job.enabled and edit.enabled
            source = fires_of(spec, calendars.get(edit.job.namespace_id, {}))
            changes.append(
                ScheduleChange(
                    id=row.id,
                    kind=_kind(spec),
                    spec=store.to_json(edit.document),
                    enabled=edit.enabled,
                    cursor=now if spec.timed else None,
                    next_fire_at=first_fire(spec, source, now, fired) if fires else None,
                    fired_count=fired,
                )
            )
            if noted is not None:
                after = SchedulePlan(spec, fires)
                before = _course_before(edit.job, row)
                noted.note(_noted(edit.job, row, before, after, withdrawn.get(row.id, 0)))
        await store.change(connection, changes)
        written = [
            WrittenSchedule(
                edit.row.id,
                edit.job.namespace_id,
                edit.document,
                specs[edit.row.id],
                fires=edit.job.enabled and edit.enabled,
                before=edit.row,
            )
            for edit in edits
        ]
        await self._run_hooks(connection, written, now)

    async def _insert(
        self,
        connection: Connection,
        specs: Sequence[tuple[EditedJob, ScheduleSpec]],
        noted: Consequences | None = None,
    ) -> list[UUID]:
        if not specs:
            return []
        now = await database_time(connection)
        calendars = await load_calendars(connection, [(job.namespace_id, spec) for job, spec in specs])
        new = []
        for job, spec in specs:
            fires = job.enabled and spec.enabled
            source = fires_of(spec, calendars.get(job.namespace_id, {}))
            one = NewSchedule(
                id=ids.new_id(now, secrets.token_bytes(10)),
                namespace_id=job.namespace_id,
                job_id=job.id,
                name=spec.name,
                kind=_kind(spec),
                spec=store.to_json(schedule_document(spec)),
                enabled=spec.enabled,
                cursor=now if spec.timed else None,
                next_fire_at=first_fire(spec, source, now, 0) if fires else None,
            )
            new.append(one)
            if noted is not None:
                noted.note(
                    ScheduleEdit(
                        *(job.namespace_id, job.version.namespace, job.version.name, spec.name, one.id),
                        before=None,
                        after=SchedulePlan(spec, fires),
                    )
                )
        await store.insert(connection, new)
        written = [
            WrittenSchedule(
                *(one.id, job.namespace_id, schedule_document(spec), spec), fires=job.enabled and spec.enabled
            )
            for one, (job, spec) in zip(new, specs, strict=True)
        ]
        await self._run_hooks(connection, written, now)
        return [one.id for one in new]

    async def _run_hooks(
        self, connection: Connection, schedules: Sequence[WrittenSchedule], now: datetime
    ) -> None:
        for hook in self._hooks:
            await hook.on_written(connection, schedules, now)


def _check_params(job: EditedJob, specs: Sequence[tuple[str, ScheduleSpec]]) -> None:
    """Refuse what could not be run: nobody is there to be told when it fires."""
    faults = []
    for path, spec in specs:
        if spec.event is not None and spec.event.params:
            continue  # what the events bring is not known yet
        if spec.daemon is not None and job.version.spec.flow is not None:
            faults.append(Fault(f"{path}.daemon".lstrip("."), FLOWS_END))
            continue
        params = {**job.version.spec.params, **spec.params}
        try:
            job.version.check(params, at=ids.EPOCH)
        except Invalid as error:
            where = f"{path}.params" if path else "params"
            faults.append(Fault(where, f"of the schedule {spec.name} do not fit the job: {error.message}"))
    if faults:
        raise Invalid("The schedules cannot be accepted.", code="schedule.invalid", faults=faults)


def _enabled(row: ScheduleRow, document: Mapping[str, Any]) -> bool:
    """What a file says about `enabled` counts when it says something new: a command has the last word."""
    says: bool = document["enabled"]
    return row.enabled if says == row.spec.get("enabled") else says


def _course_before(job: EditedJob, row: ScheduleRow) -> SchedulePlan:
    return SchedulePlan(schedule_from_document(row.spec), job.enabled and row.enabled)


def _noted(
    job: EditedJob, row: ScheduleRow, before: SchedulePlan | None, after: SchedulePlan | None, withdrawn: int
) -> ScheduleEdit:
    return ScheduleEdit(
        namespace_id=job.namespace_id,
        namespace=job.version.namespace,
        job=job.version.name,
        name=row.name,
        schedule_id=row.id,
        before=before,
        after=after,
        fired=max(0, row.fired_count - withdrawn),
        withdrawn=withdrawn,
    )


def _kind(spec: ScheduleSpec) -> str:
    return ScheduleKind(spec.kind).value


def _all_applied(
    rows: Mapping[str, ScheduleRow], documents: Mapping[str, dict[str, Any]]
) -> list[AppliedSchedule]:
    return [
        *(_applied(name, rows.get(name), document) for name, document in documents.items()),
        *(AppliedSchedule(name, ApplyAction.REMOVED) for name in sorted(rows.keys() - documents.keys())),
    ]


def _applied(name: str, known: ScheduleRow | None, document: dict[str, Any]) -> AppliedSchedule:
    if known is None:
        return AppliedSchedule(name, ApplyAction.CREATED)
    fields = field_changes(known.spec, document)
    action = ApplyAction.CHANGED if fields else ApplyAction.UNCHANGED
    return AppliedSchedule(name, action, [field.path for field in fields], fields)
