"""Schedules as both sides hold them; every field has the name it has in the job file.

A schedule has exactly one of `cron`, `every`, `at`, `event` and `daemon`.
`hetuflow_core/jobfile/readers/schedules.py` makes them from raw documents and is where their rules are; a
spec that exists has been checked.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from hetuflow_core.calendar import Weekday
from hetuflow_core.daemon import DaemonSpec
from hetuflow_core.events import EventSpec
from hetuflow_core.states import ScheduleKind

DEFAULT_TIMEZONE: Final = "UTC"
DEFAULT_MISFIRE_GRACE: Final = timedelta(seconds=60)
DEFAULT_MISFIRE_CAP: Final = 100


class Gap(StrEnum):
    """What becomes of a fixed wall-clock time that a change of clocks leaves out."""

    SHIFT = "shift"  # to the first instant after the gap
    SKIP = "skip"


class Fold(StrEnum):
    """Which pass counts for a fixed wall-clock time that a change of clocks repeats."""

    FIRST = "first"
    LAST = "last"
    BOTH = "both"


class Dst(msgspec.Struct, frozen=True, kw_only=True):
    gap: Gap = Gap.SHIFT
    fold: Fold = Fold.FIRST


class MisfirePolicy(StrEnum):
    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class Misfire(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about fires nobody generated in time; the job file writes `skip`, `latest` or `all(100)`."""

    policy: MisfirePolicy = MisfirePolicy.LATEST
    cap: int = DEFAULT_MISFIRE_CAP  # of `all`: the latest so many

    def __str__(self) -> str:
        return f"{self.policy.value}({self.cap})" if self.policy is MisfirePolicy.ALL else self.policy.value


class Overlap(StrEnum):
    """What a fire that is due does while an earlier one of its schedule has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_RUNNING = "cancel_running"


class CalendarUse(msgspec.Struct, frozen=True, kw_only=True):
    """Names of calendars: never on a day of `exclude`; if `include` has any, only on a day of one of them."""

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self.exclude, *self.include}))


class DailyBlackout(msgspec.Struct, frozen=True, kw_only=True):
    """From one time of day up to another, in the schedule's zone; one that ends first goes over midnight."""

    start: time  # `from` in the job file, which Python keeps for itself
    end: time  # `to`; not part of it
    weekdays: tuple[Weekday, ...] = ()  # of its beginning; none: every day


class Blackout(msgspec.Struct, frozen=True, kw_only=True):
    """From one instant up to another, which is not part of it."""

    start: datetime
    end: datetime


AnyBlackout: TypeAlias = "DailyBlackout | Blackout"


class AfterEnd(StrEnum):
    """Which ends of a job let what follows it fire."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    # However it ended, also when it was skipped or cancelled.
    DONE = "done"


class AfterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Fires once for each end of a task of any of these jobs; nodes of flows are no such tasks."""

    after: tuple[str, ...]
    on: AfterEnd = AfterEnd.SUCCEEDED


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    enabled: bool = True
    cron: str | None = None
    every: timedelta | None = None  # counted from `start_at`, or else from 1970-01-01T00:00:00Z
    at: datetime | None = None
    daemon: DaemonSpec | None = None
    event: EventSpec | None = None
    flow: AfterSpec | None = None
    timezone: str = DEFAULT_TIMEZONE  # of cron, of the days of calendars and of daily blackouts
    dst: Dst = Dst()  # of cron
    start_at: datetime | None = None  # the first instant it may fire at
    end_at: datetime | None = None  # the last one
    max_count: int | None = None  # of tasks it makes; what is skipped does not count
    jitter: timedelta = timedelta(0)
    calendar: CalendarUse = CalendarUse()
    blackout: tuple[AnyBlackout, ...] = ()
    misfire: Misfire = Misfire()
    misfire_grace: timedelta = DEFAULT_MISFIRE_GRACE
    overlap: Overlap = Overlap.ALLOW
    params: dict[str, Any] = {}  # on top of the job's
    priority: int | None = None  # instead of the job's

    @property
    def kind(self) -> ScheduleKind:
        if self.daemon is not None:
            return ScheduleKind.DAEMON
        if self.event is not None:
            return ScheduleKind.EVENT
        if self.flow is not None:
            return ScheduleKind.FLOW
        return ScheduleKind.TIME if self.cron is None else ScheduleKind.CRON

    @property
    def timed(self) -> bool:
        """Whether it fires at instants: only then is there a cursor, and something to generate."""
        return self.kind in {ScheduleKind.CRON, ScheduleKind.TIME}
