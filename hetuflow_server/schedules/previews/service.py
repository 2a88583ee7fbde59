"""What comes of a job's schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from uuid import UUID

from hetuflow_core.calendar import DaySet
from hetuflow_core.errors import Invalid, NotFound
from hetuflow_core.jobfile import schedule_from_document
from hetuflow_core.resources.schedules import ComingFire
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.schedule import ScheduleSpec, Skip, SkipCode, occurrences, skip_reason, upcoming
from hetuflow_core.schedule.preview import preview
from hetuflow_server.jobs import store as job_store
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules.calendars.resolved import load_calendars
from hetuflow_server.schedules.previews import store
from hetuflow_server.schedules.previews.coming_fires import shown
from hetuflow_server.schedules.previews.store import PreviewedSchedule

_FIRST_YEAR, _LAST_YEAR = 1971, 9000


class SchedulePreviews:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def of_job(
        self, context: RequestContext, job_id: UUID, *, count: int, after: datetime | None
    ) -> list[ComingFire]:
        """Return the next fires of all schedules of a job together, and what is skipped until the last."""
        async with self._database.transaction(context) as connection:
            job = await job_store.job_by_id(connection, job_id)
            if job is None or not context.sees(job.namespace):
                raise NotFound("There is no such job.", code="job.not_found")
            schedules = await store.of_job(connection, job_id)
            return await self._coming(connection, schedules, count, after)

    async def of_schedule(
        self, context: RequestContext, schedule_id: UUID, *, count: int, after: datetime | None
    ) -> list[ComingFire]:
        """Return the next fires of a schedule, and what is skipped until the last; a daemon has none."""
        async with self._database.transaction(context) as connection:
            schedule = await store.one(connection, schedule_id)
            if schedule is None or not context.sees(schedule.namespace):
                raise NotFound("There is no such schedule.", code="schedule.not_found")
            return await self._coming(connection, [schedule], count, after)

    async def _coming(
        self,
        connection: Connection,
        schedules: Sequence[PreviewedSchedule],
        count: int,
        after: datetime | None,
    ) -> list[ComingFire]:
        if after is not None and (after.tzinfo is None or not _FIRST_YEAR <= after.year <= _LAST_YEAR):
            raise Invalid(
                f"after: write an instant between {_FIRST_YEAR} and {_LAST_YEAR} with an offset, "
                "as in 2026-12-31T23:59:00+01:00."
            )
        specs = [schedule_from_document(schedule.spec) for schedule in schedules]
        uses = zip((schedule.namespace_id for schedule in schedules), specs, strict=True)
        calendars = await load_calendars(connection, uses)
        now = self._clock.now()
        # Looking at thousands of fires takes a while, which nobody else should wait for.
        return await asyncio.to_thread(
            lambda: _together(
                (
                    _fires(schedule, spec, calendars.get(schedule.namespace_id, {}), now, after or now, count)
                    for schedule, spec in zip(schedules, specs, strict=True)
                ),
                count,
            )
        )


def _fires(
    schedule: PreviewedSchedule,
    spec: ScheduleSpec,
    calendars: Mapping[str, DaySet],
    now: datetime,
    after: datetime,
    count: int,
) -> list[ComingFire]:
    fired = schedule.fired_count - _generated_ahead(schedule, spec, calendars, now)
    comings = upcoming(spec, schedule.id, calendars, after, fired=max(0, fired))
    previewed = preview(comings, count)
    if (disabled := _disabled(schedule)) is not None:
        # One by one: people look at what it would do before they enable it.
        previewed = [replace(one, skip=one.skip or disabled) for one in previewed]
    return shown(spec, previewed, schedule.id)


def _disabled(schedule: PreviewedSchedule) -> Skip | None:
    if not schedule.enabled:
        return Skip(SkipCode.DISABLED, "the schedule is disabled")
    return None if schedule.job_enabled else Skip(SkipCode.DISABLED, "the job is disabled")


def _generated_ahead(
    schedule: PreviewedSchedule, spec: ScheduleSpec, calendars: Mapping[str, DaySet], now: datetime
) -> int:
    """How many tasks there are for fires still to come: they are counted and yet shown as coming."""
    cursor = schedule.cursor
    if spec.max_count is None or cursor is None or cursor <= now:
        return 0
    ahead = takewhile(lambda fire_at: fire_at <= cursor, occurrences(spec, now))
    return sum(skip_reason(spec, calendars, fire_at) is None for fire_at in ahead)


def _together(schedules: Iterable[list[ComingFire]], count: int) -> list[ComingFire]:
    """In the order of time, until `count` fires are there."""
    found: list[ComingFire] = []
    fires = 0
    for one in sorted((one for fires in schedules for one in fires), key=lambda one: one.fire_at):
        found.append(one)
        fires += one.skip_code in {None, SkipCode.DISABLED}
        if fires == count:
            break
    return found
