"""Two courses of a schedule, compared: what comes, what goes, and how far was looked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from hetuflow_core.schedule import ScheduleSpec, Skip, SkipCode, UpcomingFire, upcoming
from hetuflow_core.schedule.comparison import NAMED, compared
from tests.unit.schedules.test_upcoming import ID

START = datetime(2026, 7, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
WEEK = timedelta(days=7)
LEFT_OUT = Skip(SkipCode.BLACKOUT, "a blackout")


def course(hours: set[int], skipped: set[int] = frozenset()) -> list[UpcomingFire]:  # type: ignore[assignment] # read only
    instants = [(START + hour * HOUR, hour) for hour in sorted(hours | skipped)]
    return [UpcomingFire(at, at, LEFT_OUT if hour in skipped else None) for at, hour in instants]


HOURS = st.sets(st.integers(0, 60), max_size=30)


@given(HOURS, HOURS, HOURS)
def test_what_differs_is_what_sets_differ_in(before: set[int], after: set[int], skipped: set[int]) -> None:
    until = START + 48 * HOUR
    result = compared(course(before), course(after, skipped), until, 1_000)
    within = set(range(49))
    added = sorted((after - skipped - before) & within)
    removed = sorted((before - (after - skipped)) & within)
    assert (result.added, result.removed) == (len(added), len(removed))
    assert list(result.first_added) == [START + hour * HOUR for hour in added[:NAMED]]
    assert list(result.first_removed) == [START + hour * HOUR for hour in removed[:NAMED]]
    assert result.until == until
    assert result.same is (not added and not removed)


@given(HOURS, HOURS, st.integers(1, 40))
def test_a_short_look_says_how_far_it_went(before: set[int], after: set[int], most: int) -> None:
    short = compared(course(before), course(after), START + 60 * HOUR, most)
    reached = {hour for hour in before | after if START + hour * HOUR < short.until}
    looked = len(before & reached) + len(after & reached)
    assert looked <= most
    if short.until < START + 60 * HOUR:
        assert (short.added, short.removed) == (len(after & reached - before), len(before & reached - after))


def test_endless_schedules_are_compared_up_to_the_end() -> None:
    hourly, daily = ScheduleSpec(name="a", cron="0 * * * *"), ScheduleSpec(name="a", cron="0 3 * * *")
    was, will_be = upcoming(hourly, ID, {}, START), upcoming(daily, ID, {}, START)
    result = compared(was, will_be, START + WEEK, 25_000)
    assert (result.added, result.removed) == (0, 7 * 23)
    assert result.first_removed[0] == START + HOUR
