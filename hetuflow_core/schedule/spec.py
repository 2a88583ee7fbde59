"""Schedules: triggers of a job, and policies for fires that are late, overlap or are excluded.

A schedule has exactly one trigger: `cron`, `every`, `at`, `daemon`, `event` or `flow`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

import msgspec

from hetuflow_core.daemon import DaemonSpec
from hetuflow_core.errors import Invalid
from hetuflow_core.events import EventSpec
from hetuflow_core.fields import (
    NAME,
    NAME_PATTERN,
    NAMES,
    PRIORITY,
    Beside,
    Check,
    Form,
    Key,
    OneOf,
    Section,
    ValueReader,
    Without,
    checked,
    distinct,
    duration,
    json_schema,
    section,
    several,
    whole,
)
from hetuflow_core.fields.instants import INSTANT
from hetuflow_core.schedule.blackouts import BLACKOUT, AnyBlackout
from hetuflow_core.schedule.clock_changes import Dst
from hetuflow_core.schedule.cron_syntax import parse_cron
from hetuflow_core.schedule.misfires import MISFIRE, Misfire
from hetuflow_core.schedule.occurrences import occurrences
from hetuflow_core.schedule.zones import zone
from hetuflow_core.states import ScheduleKind

DEFAULT_TIMEZONE: Final = "UTC"
DEFAULT_MISFIRE_GRACE: Final = timedelta(seconds=60)
TRIGGERS: Final = ("cron", "every", "at", "daemon", "event", "flow")
_BOUNDS: Final = ("start_at", "end_at", "max_count")
_MOST_COUNT: Final = 1_000_000_000
_MOST_UPSTREAMS: Final = 100
_NONE: Final = timedelta(0)
_ONLY_CRON: Final = "only cron follows wall clocks: remove dst, or use cron."


class Overlap(StrEnum):
    """How to handle a due fire while an earlier fire of the schedule has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_RUNNING = "cancel_running"


def _refuse_both(use: CalendarUse, at: Section) -> None:
    if both := sorted({*use.exclude} & {*use.include}):
        at.refuse(f"{both[0]} is both excluded and included: keep one of them.")


class CalendarUse(msgspec.Struct, frozen=True, kw_only=True):
    """Names of calendars: never fire on days of `exclude`; with `include`, only fire on days of those."""

    RULES: ClassVar = (Check(_refuse_both),)

    exclude: Annotated[tuple[str, ...], NAMES, Key("Never on a day of one of these calendars.")] = ()
    include: Annotated[
        tuple[str, ...], NAMES, Key("Only on days of one of these calendars.", default_doc="all days")
    ] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self.exclude, *self.include}))


class AfterEnd(StrEnum):
    """Which outcomes of a job fire the schedules that follow it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    # Any outcome, including skipped and cancelled.
    DONE = "done"


class AfterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Fires once for each finished task of any of these jobs, except tasks of flow nodes."""

    after: Annotated[
        tuple[str, ...],
        several(
            NAME,
            distinct,
            least=1,
            most_distinct=_MOST_UPSTREAMS,
            too_few="names no job: list those it runs after.",
            too_many=f"names more than {_MOST_UPSTREAMS} jobs: put one in between that runs after them.",
            alone=str,
            alone_schema=json_schema.matching(NAME_PATTERN),
        ),
        Key("Jobs of the namespace whose ends it fires after.", missing="list the jobs it runs after"),
    ]
    on: Annotated[AfterEnd, Key("The ends that count; `done` is any of them.")] = AfterEnd.SUCCEEDED


def _read_cron(given: ValueReader) -> str | None:
    """The expression with single spaces, so that two ways to write it are the same schedule."""
    text = given.text()
    if text is None:
        return None
    try:
        parse_cron(text)
    except Invalid as error:
        given.refuse(error.message)
        return None
    return " ".join(text.split())


def _idle_with_at(_at: str, key: str) -> str:
    if key == "dst":
        return _ONLY_CRON
    return f"a schedule with at fires once: remove {key}, or use cron or every."


def _refuse_never(schedule: ScheduleSpec, at: Section) -> None:
    start, end = schedule.start_at, schedule.end_at
    if start is None or end is None or not at.clean:
        return
    if start >= end:
        at.refuse("is not after start_at: correct one of them.", "end_at")
    elif schedule.timed and next(occurrences(schedule, start - timedelta.resolution), None) is None:
        at.refuse("the schedule never fires between start_at and end_at: correct one of them.", "end_at")


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True):
    DEFINITION: ClassVar = "schedule"
    RULES: ClassVar = (
        OneOf(TRIGGERS, 'nothing says when it fires: use {keys}, such as cron: "0 2 * * *".'),
        Beside(
            "daemon",
            ("name", "enabled", "params", "priority"),
            "a daemon runs all the time: remove {key}.",
        ),
        Beside(
            "event",
            (
                *("name", "enabled", "timezone", "start_at", "end_at", "jitter", "calendar", "blackout"),
                *("overlap", "params", "priority"),
            ),
            "a schedule with event fires when events come: remove {key}.",
        ),
        Beside(
            "flow",
            ("name", "enabled", "params", "priority", "overlap"),
            "it fires when other jobs have ended: remove {key}.",
        ),
        Without("at", ("dst", *_BOUNDS), _idle_with_at),
        Without("every", ("dst",), _ONLY_CRON),
        Check(_refuse_never),
    )

    name: Annotated[
        str, NAME, Key("Name of the schedule, unique among those of the job.", missing="name the schedule")
    ]
    enabled: Annotated[bool, Key("With false it does not fire.")] = True
    cron: Annotated[
        str | None,
        Form(_read_cron, json_schema.TEXT, summary="cron expression"),
        Key("Five or six fields, or @daily and the like."),
    ] = None
    every: Annotated[
        timedelta | None,
        duration(timedelta(seconds=1), timedelta(days=3660)),
        Key("Interval, counted from `start_at`, or else from 1970-01-01T00:00:00Z."),
    ] = None
    at: Annotated[datetime | None, INSTANT, Key("The instant at which it fires once.")] = None
    daemon: Annotated[DaemonSpec | None, Key("Kept running all the time.")] = None
    event: Annotated[EventSpec | None, Key("Fires when events come.")] = None
    flow: Annotated[AfterSpec | None, Key("Fires when other jobs have ended.")] = None
    timezone: Annotated[
        str,
        checked(zone, json_schema.TEXT, summary="name of a time zone"),
        Key("Such as Europe/Berlin; UTC if not given. Of cron, of days of calendars and of daily blackouts."),
    ] = DEFAULT_TIMEZONE
    dst: Annotated[Dst, Key("What a change of clocks does to cron.")] = Dst()
    start_at: Annotated[
        datetime | None, INSTANT, Key("The first instant at which it may fire.", default_doc="no bound")
    ] = None
    end_at: Annotated[
        datetime | None, INSTANT, Key("The last instant at which it may fire.", default_doc="no bound")
    ] = None
    max_count: Annotated[
        int | None,
        whole(1, _MOST_COUNT),
        Key("Most tasks that it creates; skipped fires do not count.", default_doc="no bound"),
    ] = None
    jitter: Annotated[
        timedelta,
        duration(_NONE, timedelta(days=1)),
        Key("Fires are delayed by up to this time, so that schedules do not all fire at once."),
    ] = _NONE
    calendar: Annotated[
        CalendarUse,
        section(CalendarUse, alone="exclude"),
        Key("Days on which it fires, or does not; names alone are short for `exclude`."),
    ] = CalendarUse()
    blackout: Annotated[
        tuple[AnyBlackout, ...], several(BLACKOUT, tuple), Key("Times in which it does not fire.")
    ] = ()
    misfire: Annotated[Misfire, MISFIRE, Key("The action for fires that no server generated in time.")] = (
        Misfire()
    )
    misfire_grace: Annotated[
        timedelta,
        duration(_NONE, timedelta(days=366)),
        Key("A fire that is late by less is not a misfire."),
    ] = DEFAULT_MISFIRE_GRACE
    overlap: Annotated[Overlap, Key("What a fire does while the task of an earlier one has not ended.")] = (
        Overlap.ALLOW
    )
    params: Annotated[dict[str, Any], Key("Parameters of its tasks; they replace those of the job.")] = {}
    priority: Annotated[
        int | None,
        PRIORITY,
        Key("Among due instances, the highest priority goes first.", default_doc="the priority of the job"),
    ] = None

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
