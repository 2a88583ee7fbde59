"""Edits of schedules: they take back what has not happened yet, and let everything else be.

Whoever edits holds the job's row first, then its schedules by id. Fires that are in the future, were never
attempted and are in nobody's hands are deleted with their tasks; the schedule gets a new version and starts
over from now. The generator compares version and cursor, so that it fires the old schedule or the new one
and nothing in between.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.calendar import Calendar
from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.jobfile import schedule_document, schedule_from_document
from hetuflow_core.jobfile.job_reader import FLOWS_END
from hetuflow_core.resources import AppliedSchedule, ApplyAction
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_core.schedule.planning import first_fire
from hetuflow_core.states import ScheduleKind
from hetuflow_server.services import event_triggers
from hetuflow_server.services.calendars import load_calendars
from hetuflow_server.services.fires import fires_of
from hetuflow_server.services.job_versions import JobVersion
from hetuflow_server.services.json_paths import differences
from hetuflow_server.store import schedules as store
from hetuflow_server.store.database import Connection
from hetuflow_server.store.schedules import NewSchedule, ScheduleChange, ScheduleRow


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


async def apply_schedules(
    connection: Connection, job: EditedJob, wanted: Sequence[ScheduleSpec], *, new_version: bool
) -> list[AppliedSchedule]:
    """Make a job's schedules what its file says; with a new version of the job they all start over."""
    _check_params(job, [(f"schedules[{place}]", spec) for place, spec in enumerate(wanted)])
    known = {row.name: row for row in await store.lock_of_job(connection, job.id)}
    documents = {spec.name: schedule_document(spec) for spec in wanted}
    changed = {name for name, row in known.items() if name in documents and documents[name] != row.spec}
    await _write(
        connection,
        job,
        [
            (row, documents[name], _enabled(row, documents[name]))
            for name, row in known.items()
            if name in documents and (new_version or name in changed)
        ],
    )
    await remove(connection, [row for name, row in known.items() if name not in documents])
    await _insert(connection, job, [spec for spec in wanted if spec.name not in known])
    return [
        *(_applied(spec.name, known.get(spec.name), documents[spec.name]) for spec in wanted),
        *(AppliedSchedule(name, ApplyAction.REMOVED) for name in sorted(known.keys() - documents.keys())),
    ]


async def restart(
    connection: Connection, job: EditedJob, rows: Sequence[ScheduleRow], *, enabled: bool | None = None
) -> None:
    """Start locked schedules over from now, enabled or disabled if that is said."""
    await _write(
        connection, job, [(row, row.spec, row.enabled if enabled is None else enabled) for row in rows]
    )


async def rewrite(connection: Connection, job: EditedJob, row: ScheduleRow, spec: ScheduleSpec) -> None:
    """Give a locked schedule another spec."""
    _check_params(job, [("", spec)])
    document = schedule_document(spec)
    await _write(connection, job, [(row, document, _enabled(row, document))])


async def add(connection: Connection, job: EditedJob, spec: ScheduleSpec) -> UUID:
    _check_params(job, [("spec", spec)])
    return (await _insert(connection, job, [spec]))[0]


async def remove(connection: Connection, rows: Sequence[ScheduleRow]) -> None:
    """Delete locked schedules; what they have fired stays, and so does what waits for its turn."""
    if rows:
        gone, now = [row.id for row in rows], await store.clock(connection)
        await store.withdraw(connection, gone, now)
        await store.remove(connection, gone, now)
        await event_triggers.forget(connection, [row.id for row in rows if "event" in row.spec])


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


async def _write(
    connection: Connection, job: EditedJob, edits: Sequence[tuple[ScheduleRow, dict[str, Any], bool]]
) -> None:
    if not edits:
        return
    now = await store.clock(connection)
    withdrawn = await store.withdraw(connection, [row.id for row, _, _ in edits], now)
    specs = {row.id: schedule_from_document(document) for row, document, _ in edits}
    calendars = await _calendars(connection, job, specs.values())
    changes = []
    for row, document, enabled in edits:
        spec, fired = specs[row.id], max(0, row.fired_count - withdrawn.get(row.id, 0))
        fires = job.enabled and enabled
        changes.append(
            ScheduleChange(
                id=row.id,
                kind=_kind(spec),
                spec=store.to_json(document),
                enabled=enabled,
                cursor=now if spec.timed else None,
                next_fire_at=first_fire(spec, fires_of(spec, calendars), now, fired) if fires else None,
                fired_count=fired,
            )
        )
    await store.change(connection, changes)
    await event_triggers.follow(
        connection,
        job.namespace_id,
        [
            event_triggers.Edit(
                row.id,
                specs[row.id],
                fires=job.enabled and enabled,
                # Whoever was disabled has forgotten what it waited for, and begins anew.
                goes_on=row.enabled and document.get("event") == row.spec.get("event"),
            )
            for row, document, enabled in edits
            if "event" in row.spec or "event" in document
        ],
        now,
    )


async def _insert(connection: Connection, job: EditedJob, specs: Sequence[ScheduleSpec]) -> list[UUID]:
    if not specs:
        return []
    now = await store.clock(connection)
    calendars = await _calendars(connection, job, specs)

    def first(spec: ScheduleSpec) -> datetime | None:
        if not (job.enabled and spec.enabled):
            return None
        return first_fire(spec, fires_of(spec, calendars), now, 0)

    new = [
        NewSchedule(
            id=ids.new_id(now, secrets.token_bytes(10)),
            namespace_id=job.namespace_id,
            job_id=job.id,
            name=spec.name,
            kind=_kind(spec),
            spec=store.to_json(schedule_document(spec)),
            enabled=spec.enabled,
            cursor=now if spec.timed else None,
            next_fire_at=first(spec),
        )
        for spec in specs
    ]
    await store.insert(connection, new)
    await event_triggers.follow(
        connection,
        job.namespace_id,
        [
            event_triggers.Edit(one.id, spec, fires=job.enabled and spec.enabled)
            for one, spec in zip(new, specs, strict=True)
            if spec.event is not None
        ],
        now,
    )
    return [one.id for one in new]


async def _calendars(
    connection: Connection, job: EditedJob, specs: Iterable[ScheduleSpec]
) -> Mapping[str, Calendar]:
    found = await load_calendars(connection, [(job.namespace_id, spec) for spec in specs])
    return found.get(job.namespace_id, {})


def _kind(spec: ScheduleSpec) -> str:
    return ScheduleKind(spec.kind).value


def _applied(name: str, known: ScheduleRow | None, document: dict[str, Any]) -> AppliedSchedule:
    if known is None:
        return AppliedSchedule(name, ApplyAction.CREATED)
    changes = differences(known.spec, document)
    return AppliedSchedule(name, ApplyAction.CHANGED if changes else ApplyAction.UNCHANGED, changes)
