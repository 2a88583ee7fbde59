"""What comes of a schedule: bounds, counts, jitter, calendars and blackouts."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from uuid import UUID

import pytest

from hetuflow_core.calendar import DayRange, DaySet, Weekday
from hetuflow_core.schedule import (
    Blackout,
    CalendarUse,
    DailyBlackout,
    ScheduleSpec,
    SkipCode,
    jittered,
    occurrences,
    upcoming,
)

ID = UUID("01930000-0000-7000-8000-000000000001")
START = datetime(2026, 1, 1, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def told(
    spec: ScheduleSpec, count: int, calendars: dict[str, DaySet] | None = None, *, fired: int = 0
) -> list[tuple[str, str | None]]:
    found = islice(upcoming(spec, ID, calendars or {}, START, fired=fired), count)
    return [
        (coming.fire_at.strftime("%m-%d %H:%M"), coming.skip.message if coming.skip else None)
        for coming in found
    ]


def test_every_counts_from_its_start() -> None:
    spec = ScheduleSpec(name="x", every=timedelta(hours=7), start_at=at("2026-01-02T01:00"))
    assert told(spec, 3) == [("01-02 01:00", None), ("01-02 08:00", None), ("01-02 15:00", None)]
    assert next(occurrences(spec, at("2026-01-02T01:00"))) == at("2026-01-02T08:00")
    assert next(occurrences(spec, at("2126-01-02T01:00"))) > at("2126-01-02T01:00")


def test_every_without_a_start_counts_from_the_epoch() -> None:
    spec = ScheduleSpec(name="x", every=timedelta(minutes=20))
    assert told(spec, 2) == [("01-01 00:20", None), ("01-01 00:40", None)]
    weekly = next(occurrences(ScheduleSpec(name="x", every=timedelta(days=7)), START))
    assert (weekly - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(days=7) == timedelta(0)


def test_at_fires_once() -> None:
    spec = ScheduleSpec(name="x", at=datetime.fromisoformat("2026-12-31T23:59:00+01:00"))
    assert list(occurrences(spec, START)) == [at("2026-12-31T22:59")]
    assert list(occurrences(spec, at("2026-12-31T22:59"))) == []


def test_start_and_end_are_both_part_of_it() -> None:
    spec = ScheduleSpec(
        name="x", cron="0 * * * *", start_at=at("2026-01-03T04:00"), end_at=at("2026-01-03T06:00")
    )
    assert [fire_at.hour for fire_at in occurrences(spec, START)] == [4, 5, 6]
    *fires, last = told(spec, 10)
    assert [fire_at for fire_at, skip in fires] == ["01-03 04:00", "01-03 05:00", "01-03 06:00"]
    assert last == ("01-03 07:00", "the schedule ends at 2026-01-03T06:00:00+00:00")


def test_the_count_ends_it_and_what_is_skipped_does_not_count() -> None:
    calendar = DaySet("odd", dates=(DayRange(date(2026, 1, 3), date(2026, 1, 3)),))
    spec = ScheduleSpec(name="x", cron="0 0 * * *", max_count=3, calendar=CalendarUse(exclude=("odd",)))
    assert told(spec, 10, {"odd": calendar}, fired=1) == [
        ("01-02 00:00", None),
        ("01-03 00:00", "2026-01-03 is excluded by the calendar odd"),
        ("01-04 00:00", None),
        ("01-05 00:00", "the schedule has fired 3 times, its max_count"),
    ]


def test_the_last_one_says_that_nothing_follows() -> None:
    spec = ScheduleSpec(name="x", cron="0 0 * * *", max_count=1)
    skips = [coming.skip for coming in upcoming(spec, ID, {}, START)]
    assert [skip and (skip.code, skip.final) for skip in skips] == [None, (SkipCode.MAX_COUNT, True)]


def test_jitter_is_stable_spread_and_moves_the_start_only() -> None:
    spec = ScheduleSpec(name="x", every=timedelta(minutes=1), jitter=timedelta(seconds=30))
    first = list(islice(upcoming(spec, ID, {}, START), 1000))
    assert first == list(islice(upcoming(spec, ID, {}, START), 1000))
    delays = [coming.due_at - coming.fire_at for coming in first]
    assert all(timedelta(0) <= delay < timedelta(seconds=30) for delay in delays)
    assert min(delays) < timedelta(seconds=1)
    assert max(delays) > timedelta(seconds=29)
    assert [coming.fire_at for coming in first] == list(islice(occurrences(spec, START), 1000))
    other = UUID(int=ID.int + 1)
    assert jittered(ID, START, spec.jitter) != jittered(other, START, spec.jitter)
    assert jittered(ID, START, timedelta(0)) == START


def test_a_calendar_goes_by_the_day_of_the_schedules_zone() -> None:
    new_year = DaySet("new-year", dates=(DayRange(date(2026, 1, 2), date(2026, 1, 2)),))
    spec = ScheduleSpec(
        name="x", cron="0 */8 * * *", timezone="Asia/Tokyo", calendar=CalendarUse(exclude=("new-year",))
    )
    skipped = [fire_at for fire_at, skip in told(spec, 7, {"new-year": new_year}) if skip]
    assert skipped == ["01-01 15:00", "01-01 23:00", "01-02 07:00"]


def test_included_calendars_admit_only_their_days() -> None:
    calendars = {
        "weekend": DaySet("weekend", weekdays=(Weekday.SAT, Weekday.SUN)),
        "month-end": DaySet("month-end", dates=(DayRange(date(2026, 1, 2), date(2026, 1, 2)),)),
    }
    spec = ScheduleSpec(name="x", cron="0 0 * * *", calendar=CalendarUse(include=("month-end", "weekend")))
    assert told(spec, 4, calendars) == [
        ("01-02 00:00", None),
        ("01-03 00:00", None),
        ("01-04 00:00", None),
        ("01-05 00:00", "2026-01-05 is in none of the included calendars month-end, weekend"),
    ]


def test_a_calendar_that_is_gone_lets_nothing_through_and_says_so() -> None:
    spec = ScheduleSpec(name="x", cron="0 0 * * *", calendar=CalendarUse(exclude=("gone",)))
    assert told(spec, 1) == [("01-02 00:00", "the calendar gone does not exist")]


def test_calendars_combine_and_make_exceptions() -> None:
    class Holidays:
        def days(self, name: str, year: int) -> dict[date, str]:
            return {date(year, 1, 6): "Epiphany"} if name == "DE-BY" else {}

    weekend = DaySet("weekend", weekdays=(Weekday.SAT, Weekday.SUN))
    closed = DaySet(
        "closed",
        holidays=("US", "DE-BY"),
        dates=(DayRange(date(2026, 1, 8), date(2026, 1, 9)),),
        calendars=(weekend,),
        except_days=(DayRange(date(2026, 1, 11), date(2026, 1, 11)),),
        holiday_sets=Holidays(),
    )
    why = {day: closed.why(date(2026, 1, day)) for day in range(5, 12)}
    assert why == {5: None, 6: "Epiphany", 7: None, 8: "2026-01-08", 9: "2026-01-09", 10: "sat", 11: None}
    spec = ScheduleSpec(name="x", cron="0 0 6 1 *", calendar=CalendarUse(exclude=("closed",)))
    assert told(spec, 1, {"closed": closed}) == [
        ("01-06 00:00", "2026-01-06 (Epiphany) is excluded by the calendar closed")
    ]


@pytest.mark.parametrize(
    ("blackout", "skipped"),
    [
        (DailyBlackout(start=time(6), end=time(12)), [6, 8, 10]),
        (DailyBlackout(start=time(20), end=time(4)), [2, 20, 22, 24]),
        (DailyBlackout(start=time(0), end=time(0)), list(range(2, 26, 2))),
        (DailyBlackout(start=time(20), end=time(0)), [20, 22]),
        # The first of January 2026 is a Thursday; a window belongs to the day it begins on.
        (DailyBlackout(start=time(20), end=time(4), weekdays=(Weekday.THU,)), [20, 22, 24]),
        (DailyBlackout(start=time(20), end=time(4), weekdays=(Weekday.WED,)), [2]),
        (DailyBlackout(start=time(6), end=time(12), weekdays=(Weekday.FRI,)), []),
        (Blackout(start=at("2026-01-01T10:00"), end=at("2026-01-01T14:00")), [10, 12]),
    ],
)
def test_blackouts(blackout: DailyBlackout | Blackout, skipped: list[int]) -> None:
    spec = ScheduleSpec(name="x", cron="0 */2 * * *", blackout=(blackout,))
    found = [coming for coming in islice(upcoming(spec, ID, {}, START), 12) if coming.skip]
    assert [(coming.fire_at - START) // timedelta(hours=1) for coming in found] == skipped
    assert all(coming.skip and coming.skip.code is SkipCode.BLACKOUT for coming in found)


def test_a_daily_blackout_goes_by_the_schedules_clock() -> None:
    blackout = DailyBlackout(start=time(9), end=time(10))
    spec = ScheduleSpec(name="x", every=timedelta(hours=1), timezone="Asia/Kathmandu", blackout=(blackout,))
    assert [fire_at for fire_at, skip in told(spec, 24) if skip] == ["01-01 04:00"]
    assert told(spec, 4)[-1] == ("01-01 04:00", "blackout from 09:00:00 to 10:00:00")
