"""What follows from edits, for whoever plans them: fires that come and go, and what becomes of live work.

Noted while a plan's transaction makes the edits, and worked out when that is rolled back: looking at
thousands of fires takes a while, during which nobody's rows are held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from hetuflow_core.calendar import DaySet
from hetuflow_core.jobfile import CalendarSpec, Document, Kind
from hetuflow_core.resources.apply import (
    AffectedInstances,
    AffectedSchedule,
    AppliedDocument,
    ApplyAction,
    FireChanges,
)
from hetuflow_core.schedule import ScheduleSpec, UpcomingFire, upcoming
from hetuflow_core.schedule.comparison import Compared, compared
from hetuflow_server.identity import access_store
from hetuflow_server.postgres.database import Connection
from hetuflow_server.schedules import unfinished_work_store
from hetuflow_server.schedules.calendars import store as calendar_store
from hetuflow_server.schedules.calendars.resolved import calendars_by_namespace
from hetuflow_server.schedules.calendars.store import CalendarRow

_WEEK: Final = timedelta(days=7)
# Fires looked at, for one schedule and for all of a plan together.
_MOST_OF_ONE: Final = 25_000
_MOST_OF_ALL: Final = 100_000

_Calendars = Mapping[int, Mapping[str, DaySet]]


@dataclass(frozen=True, slots=True)
class SchedulePlan:
    """A schedule as it was or will be."""

    spec: ScheduleSpec
    # Whether it and its job are enabled.
    fires: bool


@dataclass(frozen=True, slots=True)
class ScheduleEdit:
    """What an edit makes of one schedule; None: there was none, or is none any more."""

    namespace_id: int
    namespace: str
    job: str
    name: str
    schedule_id: UUID
    before: SchedulePlan | None
    after: SchedulePlan | None
    # Tasks it has made for fires up to now.
    fired: int = 0
    withdrawn: int = 0


class Consequences:
    """Notes of one plan."""

    def __init__(self) -> None:
        # Each schedule once: what it was at first, and what it is at last.
        self._edits: dict[UUID, ScheduleEdit] = {}
        # Whose unfinished work is affected, by (namespace, name).
        self._jobs: dict[tuple[str, str], UUID] = {}
        self._edited_namespaces: set[int] = set()
        self._before: list[CalendarRow] = []
        self._after: list[CalendarRow] = []
        self._instances: dict[UUID, unfinished_work_store.LiveInstances] = {}
        self._capped = False

    def note_job(self, namespace: str, name: str, job_id: UUID) -> None:
        """A job that becomes another version, or goes."""
        self._jobs[namespace, name] = job_id

    def note(self, edit: ScheduleEdit) -> None:
        if (earlier := self._edits.get(edit.schedule_id)) is not None:
            edit = replace(edit, before=earlier.before, withdrawn=earlier.withdrawn + edit.withdrawn)
        self._edits[edit.schedule_id] = edit

    def note_calendars(self, namespace_ids: Iterable[int]) -> None:
        """Namespaces where some are removed."""
        self._edited_namespaces.update(namespace_ids)

    async def look_before(self, connection: Connection, specs: Sequence[Document]) -> None:
        """Remember the calendars of the namespaces where some are about to be changed."""
        names = {spec.namespace for spec in specs if isinstance(spec, CalendarSpec)}
        if names:
            self.note_calendars((await access_store.namespace_ids(connection, sorted(names))).values())
        self._before = await calendar_store.all_of(connection, self._edited_namespaces)

    async def look_after(self, connection: Connection) -> None:
        """Remember what there is once everything is written."""
        users = {edit.namespace_id for edit in self._edits.values() if _names_calendars(edit)}
        self._after = await calendar_store.all_of(connection, users)
        self._instances, self._capped = await unfinished_work_store.of_jobs(
            connection, list(self._jobs.values())
        )

    async def told(self, items: Iterable[AppliedDocument], now: datetime) -> list[AppliedDocument]:
        """Return what was applied together with what follows."""
        fires = await asyncio.to_thread(self._fires, now)
        return [self._item(item, fires) for item in items]

    def _fires(self, now: datetime) -> dict[tuple[str, str, str], FireChanges]:
        after: _Calendars = calendars_by_namespace(self._after)
        untouched = {id_: known for id_, known in after.items() if id_ not in self._edited_namespaces}
        before: _Calendars = {**untouched, **calendars_by_namespace(self._before)}
        timed = [edit for edit in self._edits.values() if _timed(edit.before) or _timed(edit.after)]
        most = min(_MOST_OF_ONE, _MOST_OF_ALL // max(1, len(timed)))
        found = {}
        for edit in timed:
            was, will_be = _comings(edit, edit.before, before, now), _comings(edit, edit.after, after, now)
            result = compared(was, will_be, now + _WEEK, most)
            if not result.same:
                found[edit.namespace, edit.job, edit.name] = _shown(result)
        return found

    def _item(
        self, item: AppliedDocument, fires: Mapping[tuple[str, str, str], FireChanges]
    ) -> AppliedDocument:
        if item.action is ApplyAction.UNCHANGED or item.namespace is None:
            return item
        if item.kind == Kind.CALENDAR:
            return msgspec.structs.replace(item, affected=self._affected(item.namespace, item.name, fires))
        if item.kind != Kind.JOB:
            return item
        schedules = [
            msgspec.structs.replace(one, fires=fires.get((item.namespace, item.name, one.name)))
            for one in item.schedules
        ]
        return msgspec.structs.replace(
            item, schedules=schedules, instances=self._of_job(item.namespace, item.name)
        )

    def _of_job(self, namespace: str, name: str) -> AffectedInstances | None:
        withdrawn = sum(
            edit.withdrawn for edit in self._edits.values() if (edit.namespace, edit.job) == (namespace, name)
        )
        job_id = self._jobs.get((namespace, name))
        live = self._instances.get(job_id) if job_id is not None else None
        if live is None:
            return AffectedInstances(withdrawn=withdrawn) if withdrawn else None
        return AffectedInstances(live.kept, live.kept_running, live.replaced, withdrawn, self._capped)

    def _affected(
        self, namespace: str, calendar: str, fires: Mapping[tuple[str, str, str], FireChanges]
    ) -> list[AffectedSchedule]:
        rows = [row for row in self._after if calendar in {row.name, *row.parts}]
        through = {calendar, *(row.name for row in rows)}
        return [
            AffectedSchedule(namespace, edit.job, edit.name, fires[edit.namespace, edit.job, edit.name])
            for edit in self._edits.values()
            if edit.namespace == namespace
            and (edit.namespace, edit.job, edit.name) in fires
            and edit.after is not None
            and through & {*edit.after.spec.calendar.names}
        ]


def _names_calendars(edit: ScheduleEdit) -> bool:
    return any(plan is not None and plan.spec.calendar.names for plan in (edit.before, edit.after))


def _timed(plan: SchedulePlan | None) -> bool:
    return plan is not None and plan.spec.timed and plan.fires


def _comings(
    edit: ScheduleEdit, plan: SchedulePlan | None, calendars: _Calendars, now: datetime
) -> Iterable[UpcomingFire]:
    if plan is None or not _timed(plan):
        return ()
    here = calendars.get(edit.namespace_id, {})
    return upcoming(plan.spec, edit.schedule_id, here, now, fired=edit.fired)


def _shown(result: Compared) -> FireChanges:
    return FireChanges(
        result.added, result.removed, list(result.first_added), list(result.first_removed), result.until
    )
