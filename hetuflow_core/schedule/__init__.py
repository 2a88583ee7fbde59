"""Schedules: their definition (`ScheduleSpec`), their instants (`occurrences`) and fires (`upcoming`)."""

from hetuflow_core.schedule.blackouts import AnyBlackout, Blackout, DailyBlackout
from hetuflow_core.schedule.clock_changes import Dst, Fold, Gap
from hetuflow_core.schedule.cron_syntax import CronExpression, parse_cron
from hetuflow_core.schedule.jitter import jittered
from hetuflow_core.schedule.misfires import DEFAULT_MISFIRE_CAP, Misfire, MisfirePolicy
from hetuflow_core.schedule.occurrences import cron_occurrences, occurrences
from hetuflow_core.schedule.spec import (
    DEFAULT_MISFIRE_GRACE,
    DEFAULT_TIMEZONE,
    AfterEnd,
    AfterSpec,
    CalendarUse,
    Overlap,
    ScheduleSpec,
)
from hetuflow_core.schedule.upcoming import Skip, SkipCode, UpcomingFire, skip_reason, upcoming
from hetuflow_core.schedule.zones import zone

__all__ = [
    "DEFAULT_MISFIRE_CAP",
    "DEFAULT_MISFIRE_GRACE",
    "DEFAULT_TIMEZONE",
    "AfterEnd",
    "AfterSpec",
    "AnyBlackout",
    "Blackout",
    "CalendarUse",
    "CronExpression",
    "DailyBlackout",
    "Dst",
    "Fold",
    "Gap",
    "Misfire",
    "MisfirePolicy",
    "Overlap",
    "ScheduleSpec",
    "Skip",
    "SkipCode",
    "UpcomingFire",
    "cron_occurrences",
    "jittered",
    "occurrences",
    "parse_cron",
    "skip_reason",
    "upcoming",
    "zone",
]
