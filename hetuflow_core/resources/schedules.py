"""What the REST API answers about when jobs run: schedules, backfills, calendars and what comes."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from uuid import UUID

import msgspec


class Schedule(msgspec.Struct, frozen=True):
    """When a job runs."""

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
    # Nothing fires before this; None: nothing fires.
    next_fire_at: datetime | None
    # Tasks made so far.
    fired_count: int
    created_at: datetime
    updated_at: datetime
    # The schedule as in the job's file, with defaults filled in.
    spec: dict[str, Any]


class NewScheduleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /schedules`: another schedule for a job."""

    job_id: UUID
    # As in the job's file.
    spec: dict[str, Any]


class BackfillRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """`POST /schedules/{id}/backfill`: the fires from `from` up to and including `to` once more."""

    from_: datetime
    to: datetime
    max_parallel: int = 1
    order: str = "oldest_first"
    # On top of the schedule's own.
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
    # Fires in the range; so many have a task, so many of those have not ended, have ended, and have failed.
    total: int
    created: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    created_by: str | None = None
    created_at: datetime | None = None
    cancelled_at: datetime | None = None
    finished_at: datetime | None = None
    # In a dry run: what would be made, in that order.
    fires: list[datetime] | None = None


class Calendar(msgspec.Struct, frozen=True):
    """A named set of days that schedules of the namespace leave out, or keep to."""

    namespace: str
    name: str
    version: int
    labels: dict[str, str]
    created_at: datetime
    updated_at: datetime
    # The calendar as in its file, with defaults filled in.
    spec: dict[str, Any]


class CalendarDay(msgspec.Struct, frozen=True):
    date: date
    # The holiday's name, `sat`, or the date itself where the calendar names that.
    why: str


class CalendarDays(msgspec.Struct, frozen=True):
    items: list[CalendarDay]


class ComingFire(msgspec.Struct, frozen=True):
    """A fire of a schedule still to come, or several in a row that are skipped for the same reason."""

    # None of one that is only tried out.
    schedule_id: UUID | None
    schedule: str
    fire_at: datetime
    # When it may start: later by its jitter.
    due_at: datetime
    # `fire_at` on the schedule's own clock.
    local: str
    timezone: str
    # Why it makes no task, for people and for programs: calendar, blackout, end_at, max_count or disabled.
    skipped: str | None
    skip_code: str | None
    # How many in a row are skipped so, the last of them at `last_fire_at`; 1 for a fire.
    times: int
    last_fire_at: datetime


class ComingFires(msgspec.Struct, frozen=True):
    items: list[ComingFire]
