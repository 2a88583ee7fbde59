"""Upcoming fires of a schedule: when each may start, and why some are skipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from uuid import UUID

from hetuflow_core.calendar import WEEKDAYS, DaySet
from hetuflow_core.schedule.blackouts import AnyBlackout, Blackout, DailyBlackout
from hetuflow_core.schedule.jitter import jittered
from hetuflow_core.schedule.occurrences import unended_occurrences
from hetuflow_core.schedule.spec import ScheduleSpec
from hetuflow_core.schedule.zones import zone

_DAY = timedelta(days=1)


class SkipCode(StrEnum):
    CALENDAR = "calendar"
    BLACKOUT = "blackout"
    END_AT = "end_at"
    MAX_COUNT = "max_count"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Skip:
    code: SkipCode
    message: str

    @property
    def final(self) -> bool:
        """Whether all later fires are skipped too."""
        return self.code in {SkipCode.END_AT, SkipCode.MAX_COUNT}


@dataclass(frozen=True, slots=True)
class UpcomingFire:
    """A fire: `fire_at` is the scheduled instant, `due_at` is when it may start, unless it is skipped."""

    fire_at: datetime
    due_at: datetime
    skip: Skip | None = None


def upcoming(
    spec: ScheduleSpec,
    schedule_id: UUID,
    calendars: Mapping[str, DaySet],
    after: datetime,
    *,
    fired: int = 0,
) -> Iterator[UpcomingFire]:
    """Yield fires strictly after `after`, including skipped fires with their reason.

    `fired` is the number of tasks that the schedule has created. The first fire excluded by `end_at` or
    `max_count` is the last one yielded.
    """
    for fire_at in unended_occurrences(spec, after):
        due_at = jittered(schedule_id, fire_at, spec.jitter)
        skip = _ended(spec, fire_at) or skip_reason(spec, calendars, fire_at) or _used_up(spec, fired)
        yield UpcomingFire(fire_at, due_at, skip)
        if skip is None:
            fired += 1
        elif skip.final:
            return


def skip_reason(spec: ScheduleSpec, calendars: Mapping[str, DaySet], fire_at: datetime) -> Skip | None:
    """Return why calendars or blackouts skip this instant; None if they do not."""
    if not spec.blackout and not spec.calendar.names:
        return None
    local = fire_at.astimezone(zone(spec.timezone))
    return _calendar_skip(spec, calendars, local.date()) or _blackout_skip(spec, fire_at, local)


def _ended(spec: ScheduleSpec, fire_at: datetime) -> Skip | None:
    if spec.end_at is None or fire_at <= spec.end_at:
        return None
    return Skip(SkipCode.END_AT, f"the schedule ends at {spec.end_at.isoformat()}")


def _used_up(spec: ScheduleSpec, fired: int) -> Skip | None:
    if spec.max_count is None or fired < spec.max_count:
        return None
    return Skip(SkipCode.MAX_COUNT, f"the schedule has fired {spec.max_count} times, its max_count")


def _calendar_skip(spec: ScheduleSpec, calendars: Mapping[str, DaySet], day: date) -> Skip | None:
    for name in spec.calendar.names:
        if name not in calendars:
            # Running on a day that may be excluded is worse than not running.
            return Skip(SkipCode.CALENDAR, f"the calendar {name} does not exist")
    for name in spec.calendar.exclude:
        if (why := calendars[name].why(day)) is not None:
            label = "" if why == str(day) else f" ({why})"
            return Skip(SkipCode.CALENDAR, f"{day}{label} is excluded by the calendar {name}")
    include = spec.calendar.include
    if include and all(calendars[name].why(day) is None for name in include):
        return Skip(SkipCode.CALENDAR, f"{day} is in none of the included calendars {', '.join(include)}")
    return None


def _blackout_skip(spec: ScheduleSpec, fire_at: datetime, local: datetime) -> Skip | None:
    for blackout in spec.blackout:
        if _in_blackout(blackout, fire_at, local):
            return Skip(SkipCode.BLACKOUT, f"blackout {described(blackout)}")
    return None


def _in_blackout(blackout: AnyBlackout, fire_at: datetime, local: datetime) -> bool:
    if isinstance(blackout, Blackout):
        return blackout.start <= fire_at < blackout.end
    moment, today = local.time(), local.date()
    if blackout.start < blackout.end:
        return blackout.start <= moment < blackout.end and _begins_on(blackout, today)
    if moment >= blackout.start:
        return _begins_on(blackout, today)
    return moment < blackout.end and _begins_on(blackout, today - _DAY)


def _begins_on(blackout: DailyBlackout, day: date) -> bool:
    return not blackout.weekdays or WEEKDAYS[day.weekday()] in blackout.weekdays


def described(blackout: AnyBlackout) -> str:
    if isinstance(blackout, Blackout):
        return f"from {blackout.start.isoformat()} to {blackout.end.isoformat()}"
    days = f" on {', '.join(blackout.weekdays)}" if blackout.weekdays else ""
    return f"from {blackout.start:%H:%M:%S} to {blackout.end:%H:%M:%S}{days}"
