"""Schedules, backfills, calendars and upcoming fires in the REST API."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from uuid import UUID

import msgspec


class Schedule(msgspec.Struct, frozen=True):
    """A trigger of a job."""

    id: UUID
    namespace: str
    job: str
    job_id: UUID
    name: str
    kind: str
    # A schedule of a disabled job does not fire either.
    enabled: bool
    job_enabled: bool
    version: int
    # The earliest next fire; None: the schedule does not fire.
    next_fire_at: datetime | None
    # Number of created tasks.
    fired_count: int
    created_at: datetime
    updated_at: datetime
    # The schedule as in the job file, with defaults.
    spec: dict[str, Any]


class NewScheduleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /schedules`: adds a schedule to a job."""

    job_id: UUID
    # As in the job file.
    spec: dict[str, Any]


class BackfillRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """`POST /schedules/{id}/backfill`: repeats the fires from `from` up to and including `to`."""

    from_: datetime
    to: datetime
    max_parallel: int = 1
    order: str = "oldest_first"
    # Merged over the schedule's parameters.
    params: dict[str, Any] = {}
    dry_run: bool = False


class Backfill(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    # None in a dry run.
    id: UUID | None = None
    namespace: str
    job: str
    job_id: UUID
    job_version: int
    schedule: str
    schedule_id: UUID
    # running, cancelling, cancelled, failed or succeeded; "planned" in a dry run.
    state: str
    from_: datetime
    to: datetime
    max_parallel: int
    params: dict[str, Any] = {}
    # Fires in the range; tasks created, unfinished, finished and failed.
    total: int
    created: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    created_by: str | None = None
    created_at: datetime | None = None
    cancelled_at: datetime | None = None
    finished_at: datetime | None = None
    # In a dry run: the fires in the order of their tasks.
    fires: list[datetime] | None = None


class Calendar(msgspec.Struct, frozen=True):
    """A named set of days that schedules of the namespace skip or are restricted to."""

    namespace: str
    name: str
    version: int
    labels: dict[str, str]
    created_at: datetime
    updated_at: datetime
    # The calendar as in its file, with defaults.
    spec: dict[str, Any]


class CalendarDay(msgspec.Struct, frozen=True):
    date: date
    # The holiday's name, `sat`, or the date if the calendar lists it.
    why: str


class CalendarDays(msgspec.Struct, frozen=True):
    items: list[CalendarDay]


class ComingFire(msgspec.Struct, frozen=True):
    """An upcoming fire, or several consecutive fires that are skipped for the same reason."""

    # None in a preview.
    schedule_id: UUID | None
    schedule: str
    fire_at: datetime
    # When the task may start: `fire_at` plus jitter.
    due_at: datetime
    # `fire_at` in the schedule's time zone.
    local: str
    timezone: str
    # Why no task is created, as text and as code: calendar, blackout, end_at, max_count or disabled.
    skipped: str | None
    skip_code: str | None
    # Number of skipped fires, the last one at `last_fire_at`; 1 for a fire that is not skipped.
    times: int
    last_fire_at: datetime


class ComingFires(msgspec.Struct, frozen=True):
    items: list[ComingFire]
