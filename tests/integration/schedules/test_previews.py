"""What comes of stored schedules, and what an edit of a calendar does to them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, Invalid, NotFound
from hetuflow_core.resources.schedules import ComingFire
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.app.schedule_edits import schedule_edits
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.postgres.database import Database
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.schedules.actions import Schedules
from hetuflow_server.schedules.calendars.actions import CalendarActions
from hetuflow_server.schedules.previews.service import SchedulePreviews
from hetuflow_server.schedules.store import ScheduleFilter

WHO = RequestContext.internal(Principal.with_role("test", Role.ADMIN))
ELSEWHERE = RequestContext.internal(Principal.with_role("other", Role.EDITOR, "elsewhere"))
FUTURE = datetime(2030, 1, 1, tzinfo=UTC)
WEEKEND = {"kind": "calendar", "name": "weekend", "weekdays": ["sat", "sun"]}


def job(name: str, *schedules: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "job", "name": name, "run": {"command": ["true"]}, "schedules": list(schedules)}


class Stored:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.previews = SchedulePreviews(database, SystemClock())
        self.schedules = Schedules(database, schedule_edits())
        self.calendars = CalendarActions(database, SystemClock(), schedule_edits())

    async def apply(self, *documents: dict[str, Any]) -> None:
        await DocumentApplier(self.database, SystemClock(), schedule_edits()).apply(
            WHO, documents, dry_run=False
        )

    async def rows(self, job_name: str) -> dict[str, Any]:
        found, _ = await self.schedules.list_schedules(
            WHO, ScheduleFilter(namespace="default", job=job_name), after=None, limit=100, cap=100
        )
        return {one.name: one for one in found}

    async def next(self, schedule_id: UUID, count: int) -> list[ComingFire]:
        return await self.previews.of_schedule(WHO, schedule_id, count=count, after=FUTURE)


@pytest.fixture
def stored(database: Database) -> Stored:
    return Stored(database)


def told(fires: list[ComingFire]) -> list[tuple[str, str, str | None, int]]:
    return [(one.schedule, f"{one.fire_at:%m-%d %H:%M}", one.skip_code, one.times) for one in fires]


async def test_fires_come_with_the_reason_for_those_that_do_not(stored: Stored) -> None:
    await stored.apply(
        WEEKEND,
        job("a", {"name": "often", "cron": "0 */8 * * *", "timezone": "Asia/Tokyo", "calendar": "weekend"}),
    )
    fires = await stored.next((await stored.rows("a"))["often"].id, 12)
    # The fifth of January 2030 is a Saturday; in Tokyo it begins at 15:00 the day before.
    assert told(fires)[9:13] == [
        ("often", "01-04 07:00", None, 1),
        ("often", "01-04 15:00", "calendar", 3),
        ("often", "01-05 15:00", "calendar", 3),
        ("often", "01-06 15:00", None, 1),
    ]
    saturday = fires[10]
    assert saturday.skipped == "2030-01-05 (sat) is excluded by the calendar weekend"
    assert (saturday.local, saturday.timezone) == ("2030-01-05T00:00:00+09:00", "Asia/Tokyo")
    assert saturday.last_fire_at == datetime(2030, 1, 5, 7, tzinfo=UTC)


async def test_a_jobs_schedules_are_shown_together(stored: Stored) -> None:
    await stored.apply(
        job(
            "a",
            {"name": "daily", "cron": "0 6 * * *"},
            {"name": "half", "every": "12h", "end_at": "2030-01-02T00:00:00Z", "jitter": "1h"},
            {"name": "off", "cron": "0 9 * * *", "enabled": False},
        )
    )
    rows = await stored.rows("a")
    fires = await stored.previews.of_job(WHO, rows["daily"].job_id, count=6, after=FUTURE)
    assert told(fires) == [
        ("daily", "01-01 06:00", None, 1),
        ("off", "01-01 09:00", "disabled", 1),
        ("half", "01-01 12:00", None, 1),
        ("half", "01-02 00:00", None, 1),
        ("daily", "01-02 06:00", None, 1),
        ("off", "01-02 09:00", "disabled", 1),
    ]
    assert all(one.fire_at <= one.due_at < one.fire_at + timedelta(hours=1) for one in fires)
    assert fires[2].due_at > fires[2].fire_at
    ended = await stored.next(rows["half"].id, 5)
    assert told(ended)[-1] == ("half", "01-02 12:00", "end_at", 1)


async def test_the_count_of_what_has_fired_is_known(stored: Stored) -> None:
    await stored.apply(job("a", {"name": "thrice", "cron": "0 6 * * *", "max_count": 3}))
    row = (await stored.rows("a"))["thrice"]
    async with stored.database.transaction() as connection:
        # Two have fired, and one more is generated ahead.
        await connection.execute(
            "UPDATE sched_schedule SET fired_count = 2, next_fire_at = '2100-01-02', "
            "cursor = date_trunc('day', clock_timestamp()) + interval '31 hours'",
        )
    now = datetime.now(UTC)
    fires = await stored.previews.of_schedule(WHO, row.id, count=5, after=now)
    ahead = sum(one.skip_code is None for one in fires)
    until = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(hours=31)
    generated = sum(
        now < now.replace(hour=6, minute=0, second=0, microsecond=0) + timedelta(days=n) <= until
        for n in (0, 1)
    )
    assert ahead == 3 - (2 - generated)
    assert fires[-1].skip_code == "max_count"


async def test_who_may_not_see_it_finds_nothing(stored: Stored) -> None:
    await stored.apply({"kind": "namespace", "name": "elsewhere"}, job("a", {"name": "x", "cron": "@daily"}))
    row = (await stored.rows("a"))["x"]
    for refused in (
        stored.previews.of_schedule(ELSEWHERE, row.id, count=1, after=None),
        stored.previews.of_job(ELSEWHERE, row.job_id, count=1, after=None),
        stored.previews.of_schedule(WHO, uuid4(), count=1, after=None),
    ):
        with pytest.raises(NotFound):
            await refused
    with pytest.raises(Invalid, match="with an offset"):
        await stored.previews.of_schedule(WHO, row.id, count=1, after=datetime(2030, 1, 1))  # noqa: DTZ001
    await stored.schedules.delete(WHO, row.id)
    with pytest.raises(NotFound):
        await stored.previews.of_schedule(WHO, row.id, count=1, after=None)


async def test_an_edit_of_a_calendar_is_an_edit_of_the_schedules_that_use_it(stored: Stored) -> None:
    await stored.apply(
        {"kind": "calendar", "name": "closed", "weekdays": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]},
        {"kind": "calendar", "name": "all", "calendars": ["closed"]},
        job("a", {"name": "direct", "cron": "* * * * *", "calendar": "closed"}),
        job("b", {"name": "through", "cron": "* * * * *", "calendar": "all"}, {"name": "not", "every": "1m"}),
    )
    before = {**await stored.rows("a"), **await stored.rows("b")}
    assert {name: row.version for name, row in before.items()} == {"direct": 1, "through": 1, "not": 1}
    await stored.calendars.change(WHO, "default", "closed", {"labels": {"team": "x"}})
    assert (await stored.rows("a"))["direct"].version == 1
    await stored.calendars.change(WHO, "default", "closed", {"weekdays": None, "dates": ["2001-01-01"]})
    after = {**await stored.rows("a"), **await stored.rows("b")}
    assert {name: row.version for name, row in after.items()} == {"direct": 2, "through": 2, "not": 1}
    soon = datetime.now(UTC) + timedelta(minutes=2)
    assert all(after[name].next_fire_at <= soon for name in ("direct", "through"))
    assert all(before[name].next_fire_at is None or before[name].next_fire_at > soon for name in ("direct",))


async def test_a_schedule_names_calendars_that_exist_and_keeps_them(stored: Stored) -> None:
    daily = {"name": "x", "cron": "@daily", "calendar": "weekend"}
    with pytest.raises(Invalid) as caught:
        await stored.apply(job("a", daily))
    assert caught.value.code == "calendar.not_defined"
    assert caught.value.faults[0].field == "documents[0].schedules[0].calendar"
    await stored.apply(job("a", {"name": "x", "cron": "@daily"}))
    row = (await stored.rows("a"))["x"]
    with pytest.raises(Invalid, match="not defined"):
        await stored.schedules.change(WHO, row.id, {"calendar": "weekend"})
    with pytest.raises(Invalid, match="not defined"):
        await stored.schedules.add(WHO, row.job_id, {**daily, "name": "y"})
    await stored.apply(job("a", daily), WEEKEND)
    with pytest.raises(Conflict, match="used by a/x"):
        await stored.calendars.delete(WHO, "default", "weekend")
    await stored.apply(job("a"))
    await stored.calendars.delete(WHO, "default", "weekend")


async def test_applies_and_edits_of_calendars_at_once_end(stored: Stored) -> None:
    """Neither waits in a ring for the other's jobs."""

    def documents(weekday: str, names: str) -> list[dict[str, Any]]:
        calendar = {"kind": "calendar", "name": "closed", "weekdays": [weekday]}
        schedule = {"name": "x", "cron": "@daily", "calendar": "closed", "params": {"day": weekday}}
        return [calendar, *(job(name, schedule) for name in names)]

    await stored.apply(*documents("mon", "abcdef"))
    async with asyncio.timeout(60):
        await asyncio.gather(
            *(stored.apply(*documents(day, names)) for day in ("tue", "wed") for names in ("fedc", "abef")),
            *(stored.apply(*documents("x", names)[1:]) for names in ("cdab", "fe")),
            *(
                stored.calendars.change(WHO, "default", "closed", {"weekdays": [day]})
                for day in ("fri", "sat")
            ),
        )
    assert all([(await stored.rows(name))["x"].version > 1 for name in "abcdef"])
