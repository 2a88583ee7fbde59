"""The definition of a schedule; fields have the same names as in the job file.

A schedule has exactly one of `cron`, `every`, `at`, `event` and `daemon`.
The job file readers validate raw documents and create specs, so a spec is always valid.
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
    """How to handle a fixed wall-clock time that a clock change skips."""

    SHIFT = "shift"  # to the first instant after the gap
    SKIP = "skip"


class Fold(StrEnum):
    """Which pass counts for a fixed wall-clock time that a clock change repeats."""

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
    """How to handle fires that were not generated in time; in the job file `skip`, `latest` or `all(100)`."""

    policy: MisfirePolicy = MisfirePolicy.LATEST
    cap: int = DEFAULT_MISFIRE_CAP  # of `all`: number of latest misfires

    def __str__(self) -> str:
        return f"{self.policy.value}({self.cap})" if self.policy is MisfirePolicy.ALL else self.policy.value


class Overlap(StrEnum):
    """How to handle a due fire while an earlier fire of the schedule has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_RUNNING = "cancel_running"


class CalendarUse(msgspec.Struct, frozen=True, kw_only=True):
    """Names of calendars: never fire on days of `exclude`; with `include`, only fire on days of those."""

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self.exclude, *self.include}))


class DailyBlackout(msgspec.Struct, frozen=True, kw_only=True):
    """A daily period in the schedule's zone; it crosses midnight if `end` is before `start`."""

    start: time  # `from` in the job file, a keyword in Python
    end: time  # `to`, exclusive
    weekdays: tuple[Weekday, ...] = ()  # of `start`; empty: every day


class Blackout(msgspec.Struct, frozen=True, kw_only=True):
    """From one instant to another, exclusive."""

    start: datetime
    end: datetime


AnyBlackout: TypeAlias = "DailyBlackout | Blackout"


class AfterEnd(StrEnum):
    """Which outcomes of a job fire the schedules that follow it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    # Any outcome, including skipped and cancelled.
    DONE = "done"


class AfterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Fires once for each finished task of any of these jobs, except tasks of flow nodes."""

    after: tuple[str, ...]
    on: AfterEnd = AfterEnd.SUCCEEDED


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    enabled: bool = True
    cron: str | None = None
    every: timedelta | None = None  # counted from `start_at`, by default 1970-01-01T00:00:00Z
    at: datetime | None = None
    daemon: DaemonSpec | None = None
    event: EventSpec | None = None
    flow: AfterSpec | None = None
    timezone: str = DEFAULT_TIMEZONE  # for cron, calendar days and daily blackouts
    dst: Dst = Dst()  # for cron
    start_at: datetime | None = None  # first instant at which the schedule may fire
    end_at: datetime | None = None  # last instant
    max_count: int | None = None  # number of tasks; skipped fires do not count
    jitter: timedelta = timedelta(0)
    calendar: CalendarUse = CalendarUse()
    blackout: tuple[AnyBlackout, ...] = ()
    misfire: Misfire = Misfire()
    misfire_grace: timedelta = DEFAULT_MISFIRE_GRACE
    overlap: Overlap = Overlap.ALLOW
    params: dict[str, Any] = {}  # merged over the job's parameters
    priority: int | None = None  # replaces the job's priority

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
        """Whether the schedule fires at instants; only then it has a cursor."""
        return self.kind in {ScheduleKind.CRON, ScheduleKind.TIME}
