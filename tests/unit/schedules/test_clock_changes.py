"""Fires around changes of clocks, beside an oracle that walks the wall clock minute by minute.

The oracle knows the zones and the words of the policy, and nothing of the code it is beside: it looks at each
minute of a few days, asks what the clock on the wall shows, and whether it shows that again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.schedule import Dst, Fold, Gap, cron_occurrences

MINUTE = timedelta(minutes=1)
# A day near which the clocks of the zone change.
CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-04"),  # by half an hour
    ("Australia/Lord_Howe", "2026-10-03"),
    ("Asia/Kathmandu", "1985-12-31"),  # a quarter of an hour, once and for all
    ("Asia/Kathmandu", "2026-03-29"),
    ("America/St_Johns", "2026-03-08"),
    ("America/St_Johns", "2006-10-29"),  # at one minute past midnight: the repeated hour goes over it
    ("America/St_Johns", "2006-04-02"),
    ("Africa/Casablanca", "2026-02-15"),  # the other way round, for Ramadan
    ("Africa/Casablanca", "2026-03-22"),
    ("America/Sao_Paulo", "2018-11-04"),  # midnight does not exist
    ("America/Sao_Paulo", "2018-02-17"),  # midnight comes twice
    ("Antarctica/Troll", "2026-03-29"),  # two hours
    ("Antarctica/Troll", "2026-10-25"),
    ("Pacific/Apia", "2011-12-30"),  # a whole day is missing
    ("Europe/Dublin", "2026-10-25"),  # winter is the exception there
    ("Asia/Pyongyang", "2018-05-04"),  # the day ends half an hour early
    ("Antarctica/Palmer", "1965-01-01"),  # the repeated hours end with the year
]


@dataclass(frozen=True)
class Fields:
    """A cron expression as sets; None is any."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    weekdays: frozenset[int] | None

    def match(self, wall: datetime) -> bool:
        by_day = self.days is not None and wall.day in self.days
        by_weekday = self.weekdays is not None and wall.isoweekday() % 7 in self.weekdays
        any_day = self.days is None and self.weekdays is None
        return wall.minute in self.minutes and wall.hour in self.hours and (any_day or by_day or by_weekday)


@cache
def wall_clock(zone: str, day: str) -> list[tuple[datetime, datetime]]:
    """Every minute of five days, and what the wall shows then."""
    middle = datetime.fromisoformat(day).replace(tzinfo=UTC)
    start, info = middle - timedelta(days=2), ZoneInfo(zone)
    instants = [start + n * MINUTE for n in range(5 * 24 * 60)]
    return [(instant, instant.astimezone(info).replace(tzinfo=None)) for instant in instants]


@cache
def passes(zone: str, day: str) -> dict[datetime, list[datetime]]:
    """When the wall shows a time, in order."""
    found = defaultdict(list)
    for instant, wall in wall_clock(zone, day):
        found[wall].append(instant)
    return found


def elapsed_fires(zone: str, day: str, fields: Fields) -> list[datetime]:
    return [instant for instant, wall in wall_clock(zone, day) if fields.match(wall)]


def fixed_fires(zone: str, day: str, fields: Fields, gap: Gap, fold: Fold) -> list[datetime]:
    counts: dict[Fold, Callable[[list[datetime], datetime], bool]] = {
        Fold.FIRST: lambda same, instant: instant == same[0],
        Fold.LAST: lambda same, instant: instant == same[-1],
        Fold.BOTH: lambda _same, _instant: True,
    }
    fires, before = [], None
    for instant, wall in wall_clock(zone, day):
        if fields.match(wall) and counts[fold](passes(zone, day)[wall], instant):
            fires.append(instant)
        elif gap is Gap.SHIFT and before is not None and wall - before > MINUTE:
            left_out = (before + n * MINUTE for n in range(1, (wall - before) // MINUTE))
            if any(fields.match(missing) for missing in left_out):
                fires.append(instant)
        before = wall
    return fires


def code_fires(zone: str, day: str, cron: str, dst: Dst) -> list[datetime]:
    clock = wall_clock(zone, day)
    first, last = clock[0][0], clock[-1][0]
    fires = cron_occurrences(cron, zone, dst, first - timedelta(seconds=1))
    return list(takewhile(lambda fire_at: fire_at <= last, fires))


def written(numbers: frozenset[int] | None) -> str:
    return "*" if numbers is None else ",".join(map(str, sorted(numbers)))


def some(low: int, high: int, most: int) -> st.SearchStrategy[frozenset[int]]:
    return st.frozensets(st.integers(low, high), min_size=1, max_size=most)


MINUTES = some(0, 59, 5)
DAYS = st.one_of(st.none(), st.none(), some(1, 31, 20))
WEEKDAYS = st.one_of(st.none(), st.none(), some(0, 6, 4))
# Small hours more often: that is when clocks change.
FIXED_HOURS = st.one_of(some(0, 3, 4), some(0, 23, 6), st.just(frozenset({23, 0})))
STEPS = st.one_of(st.just("*"), st.integers(2, 9).map("*/{}".format), st.just("1-22/3"), st.just("22-3/2"))


def hours_of(step: str) -> frozenset[int]:
    if step == "*":
        return frozenset(range(24))
    if step == "22-3/2":
        return frozenset({22, 0, 2})
    return frozenset(range(1, 23, 3)) if step == "1-22/3" else frozenset(range(0, 24, int(step[2:])))


@settings(deadline=None, max_examples=20)
@pytest.mark.parametrize(("zone", "day"), CHANGES)
@given(st.builds(Fields, MINUTES, FIXED_HOURS, DAYS, WEEKDAYS), st.sampled_from(Gap), st.sampled_from(Fold))
def test_fixed_hours_follow_the_policy(zone: str, day: str, fields: Fields, gap: Gap, fold: Fold) -> None:
    days, weekdays = written(fields.days), written(fields.weekdays)
    cron = f"{written(fields.minutes)} {written(fields.hours)} {days} * {weekdays}"
    assert code_fires(zone, day, cron, Dst(gap=gap, fold=fold)) == fixed_fires(zone, day, fields, gap, fold)


@settings(deadline=None, max_examples=10)
@pytest.mark.parametrize(("zone", "day"), CHANGES)
@given(MINUTES, STEPS, DAYS, st.sampled_from(Gap), st.sampled_from(Fold))
def test_wildcards_and_steps_follow_elapsed_time(
    zone: str, day: str, minutes: frozenset[int], step: str, days: frozenset[int] | None, gap: Gap, fold: Fold
) -> None:
    cron = f"{written(minutes)} {step} {written(days)} * *"
    fields = Fields(minutes, hours_of(step), days, None)
    assert code_fires(zone, day, cron, Dst(gap=gap, fold=fold)) == elapsed_fires(zone, day, fields)


@pytest.mark.parametrize(("zone", "day"), CHANGES)
@pytest.mark.parametrize("fold", Fold)
def test_seconds_are_seconds_in_every_pass(zone: str, day: str, fold: Fold) -> None:
    """Whatever the minute does, each of its two seconds does."""
    by_minute = code_fires(zone, day, "* 0,1,2,3,23 * * *", Dst(gap=Gap.SKIP, fold=fold))
    by_second = code_fires(zone, day, "5,50 * 0,1,2,3,23 * * *", Dst(gap=Gap.SKIP, fold=fold))
    last = wall_clock(zone, day)[-1][0]
    both = (minute + timedelta(seconds=second) for minute in by_minute for second in (5, 50))
    assert by_second == [fire_at for fire_at in both if fire_at <= last]


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_it_does_not_matter_where_one_begins(zone: str, day: str) -> None:
    for cron in ("*/20 0-4 * * *", "*/20 * * * *"):
        for fold in Fold:
            whole = code_fires(zone, day, cron, Dst(fold=fold))
            assert whole == sorted(set(whole))
            for before, after in pairwise(whole):
                for asked in (before, after - timedelta(microseconds=1)):
                    assert next(cron_occurrences(cron, zone, Dst(fold=fold), asked)) == after


def test_the_oracle_sees_changes_of_both_kinds() -> None:
    """Or the tests above would show nothing."""
    jumps = {
        (zone, later[1] - earlier[1] > MINUTE)
        for zone, day in CHANGES
        for clock in [wall_clock(zone, day)]
        for earlier, later in pairwise(clock)
        if later[1] - earlier[1] != MINUTE
    }
    assert len([zone for zone, forward in jumps if forward]) >= 8
    assert len([zone for zone, forward in jumps if not forward]) >= 8
