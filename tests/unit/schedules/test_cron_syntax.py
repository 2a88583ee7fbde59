"""Cron expressions: what they mean, and what is said about those that mean nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from croniter import croniter
from hypothesis import assume, given, settings, strategies as st

from hetuflow_core.errors import Invalid
from hetuflow_core.schedule import Dst, cron_occurrences, parse_cron

START = datetime(2026, 1, 1, tzinfo=UTC)


def fires(cron: str, count: int, after: datetime = START) -> list[str]:
    found = islice(cron_occurrences(cron, "UTC", Dst(), after), count)
    return [fire_at.strftime("%Y-%m-%d %H:%M:%S") for fire_at in found]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 2 * * *", ["2026-01-01 02:00:00", "2026-01-02 02:00:00"]),
        ("  0   2 * *  * ", ["2026-01-01 02:00:00", "2026-01-02 02:00:00"]),
        ("30 0 2 * * *", ["2026-01-01 02:00:30", "2026-01-02 02:00:30"]),
        ("*/20 * * * * *", ["2026-01-01 00:00:20", "2026-01-01 00:00:40", "2026-01-01 00:01:00"]),
        ("50/5 * * * *", ["2026-01-01 00:50:00", "2026-01-01 00:55:00", "2026-01-01 01:50:00"]),
        ("0 22-2/2 * * *", ["2026-01-01 02:00:00", "2026-01-01 22:00:00", "2026-01-02 00:00:00"]),
        ("0 0 * * FRI-MON", ["2026-01-02 00:00:00", "2026-01-03 00:00:00", "2026-01-04 00:00:00"]),
        ("0 0 * * sun", ["2026-01-04 00:00:00", "2026-01-11 00:00:00"]),
        ("0 0 * * 7", ["2026-01-04 00:00:00", "2026-01-11 00:00:00"]),
        ("0 0 * * 5-7", ["2026-01-02 00:00:00", "2026-01-03 00:00:00", "2026-01-04 00:00:00"]),
        ("0 0 1 JAN,jul *", ["2026-07-01 00:00:00", "2027-01-01 00:00:00"]),
        ("*/00010 * * * *", ["2026-01-01 00:10:00", "2026-01-01 00:20:00", "2026-01-01 00:30:00"]),
        ("00010 * * * *", ["2026-01-01 00:10:00", "2026-01-01 01:10:00"]),
        ("59/52 * * * *", ["2026-01-01 00:59:00", "2026-01-01 01:59:00"]),
        ("0 0 28-10/13 * *", ["2026-01-10 00:00:00", "2026-01-28 00:00:00", "2026-02-10 00:00:00"]),
        ("0 0 1 jul-3/4 *", ["2026-03-01 00:00:00", "2026-07-01 00:00:00", "2026-11-01 00:00:00"]),
        ("0 0 * * 0-7", ["2026-01-02 00:00:00", "2026-01-03 00:00:00"]),
        ("0 0 * * 1-7/3", ["2026-01-04 00:00:00", "2026-01-05 00:00:00", "2026-01-08 00:00:00"]),
        ("0 0 * * 7-2", ["2026-01-04 00:00:00", "2026-01-05 00:00:00", "2026-01-06 00:00:00"]),
        ("0 0 * * fri#2,mon", ["2026-01-05 00:00:00", "2026-01-09 00:00:00", "2026-01-12 00:00:00"]),
        ("0 0 * * fri,fri#2", ["2026-01-02 00:00:00", "2026-01-09 00:00:00", "2026-01-16 00:00:00"]),
        ("0 0 15W,20 * *", ["2026-01-15 00:00:00", "2026-01-20 00:00:00"]),
        ("0 0 5-5 * *", ["2026-01-05 00:00:00", "2026-02-05 00:00:00"]),
        ("0 0 31 * *", ["2026-01-31 00:00:00", "2026-03-31 00:00:00"]),
        ("0 0 L * *", ["2026-01-31 00:00:00", "2026-02-28 00:00:00"]),
        ("0 0 LW * *", ["2026-01-30 00:00:00", "2026-02-27 00:00:00", "2026-03-31 00:00:00"]),
        ("0 0 1W * *", ["2026-02-02 00:00:00", "2026-03-02 00:00:00", "2026-04-01 00:00:00"]),
        ("0 0 15w 2,8 *", ["2026-02-16 00:00:00", "2026-08-14 00:00:00"]),
        ("0 0 * * MON#2", ["2026-01-12 00:00:00", "2026-02-09 00:00:00"]),
        ("0 0 * * fri#5", ["2026-01-30 00:00:00", "2026-05-29 00:00:00"]),
        ("0 0 * * 5L", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 * * L5", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 * * FRIL", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        # Both days restricted: either suffices, as in every cron.
        ("0 0 13 * FRI", ["2026-01-02 00:00:00", "2026-01-09 00:00:00", "2026-01-13 00:00:00"]),
        # A field that names every day restricts nothing.
        ("0 0 1-31 * MON", ["2026-01-05 00:00:00", "2026-01-12 00:00:00"]),
        ("0 0 13 * 0-6", ["2026-01-13 00:00:00", "2026-02-13 00:00:00"]),
        ("0 0 */2 * MON", ["2026-01-03 00:00:00", "2026-01-05 00:00:00", "2026-01-07 00:00:00"]),
        ("0 0 ? * MON", ["2026-01-05 00:00:00", "2026-01-12 00:00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        ("0 0 30 2,3 *", ["2026-03-30 00:00:00", "2027-03-30 00:00:00"]),
        ("0 0 31 2 MON", ["2026-02-02 00:00:00", "2026-02-09 00:00:00"]),
        ("@hourly", ["2026-01-01 01:00:00", "2026-01-01 02:00:00"]),
        ("@daily", ["2026-01-02 00:00:00", "2026-01-03 00:00:00"]),
        ("@midnight", ["2026-01-02 00:00:00"]),
        ("@weekly", ["2026-01-04 00:00:00", "2026-01-11 00:00:00"]),
        ("@Monthly", ["2026-02-01 00:00:00", "2026-03-01 00:00:00"]),
        ("@yearly", ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
        ("@annually", ["2027-01-01 00:00:00"]),
    ],
)
def test_what_an_expression_means(cron: str, expected: list[str]) -> None:
    assert fires(cron, len(expected)) == expected


@pytest.mark.parametrize("weekday", range(7))
def test_the_rarest_expressions_are_found(weekday: int) -> None:
    """A fifth Friday in February may take forty years; the last day of February tells when."""
    leap_days = [datetime(year, 2, 29, tzinfo=UTC) for year in range(2028, 2128) if _is_leap(year)]
    expected = [str(day.replace(tzinfo=None)) for day in leap_days if day.isoweekday() % 7 == weekday]
    assert fires(f"0 0 * 2 {weekday}#5", len(expected)) == expected


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and year != 2100


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("", "has 5 fields, or 6 with seconds first, not 0"),
        ("* * * *", "has 5 fields, or 6 with seconds first, not 4"),
        ("0 0 0 1 1 * 2026", "not 7"),
        ("60 * * * *", "the minute of the cron expression is wrong: 60 is not between 0 and 59"),
        ("61 * * * * *", "the second of"),
        ("0 24 * * *", "the hour of"),
        ("0 0 0 * *", "the day of month of the cron expression is wrong: 0 is not between 1 and 31"),
        ("0 0 32 * *", "the day of month of"),
        ("0 0 * 13 *", "the month of"),
        ("0 0 * * 8", "the day of week of"),
        ("0 0 * * FOO", '"FOO" is not a number, or a name such as SUN'),
        ("0 0 * MON *", "the month of"),
        ("JAN 0 * * *", '"JAN" is not a number'),
        ("*/0 * * * *", '"0" is not a step between 1 and 59'),
        ("*/x * * * *", '"x" is not a step'),
        ("*/60 * * * *", '"60" is not a step between 1 and 59'),
        ("5/70 * * * *", "is not a step"),
        ("0 0 * 9-0 *", "the month of the cron expression is wrong: 0 is not between 1 and 12"),
        ("R(0-10) * * * *", "is not a number"),
        ("*/99999999 * * * *", "is not a step"),
        ("1,,2 * * * *", "nothing between two commas"),
        ("-1 * * * *", "is not a number"),
        ("1-2-3 * * * *", '"2-3" is not a number'),
        ("1-/2 * * * *", "is not a number"),
        ("L * * * *", "is not a number"),
        ("R * * * *", "is not a number"),
        ("H H * * *", "is not a number"),
        ("? * * * *", "is not a number"),
        ("\u0661 * * * *", "is not a number"),
        ("0 0 99W * *", "99 is not between 1 and 31"),
        ("0 0 * * FRI#6", "a month has no 6th of a weekday"),
        ("0 0 * * FRI#0", "a month has no 0th of a weekday"),
        ("@reboot", "belongs to no host"),
        ("@fortnightly", "is not a known macro"),
        ("0 0 30 2 *", "this never fires: FEB has no day 30"),
        ("0 0 30W 2 *", "this never fires"),
        ("0 0 31 2,4,6,9,11 *", "this never fires: FEB, APR, JUN, SEP, NOV has no day 31"),
        (",".join("0" * 1000) + " * * * *", "longer than 1000 characters"),
    ],
)
def test_what_is_said_about_one_that_means_nothing(cron: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_cron(cron)
    assert message in caught.value.message
    assert caught.value.message.endswith(".")


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.lists(number, min_size=2, max_size=2, unique=True).map(lambda two: f"{min(two)}-{max(two)}")
    step = st.integers(1, high)
    item = st.one_of(number.map(str), span, st.builds("{}/{}".format, st.just("*"), step))
    return st.one_of(st.just("*"), st.lists(item, min_size=1, max_size=3, unique=True).map(",".join))


@st.composite
def _ranges(draw: st.DrawFn) -> tuple[str, str, frozenset[int]]:
    """A field's name, an item with a range and a step, and the values that a walk around the field meets."""
    name, low, high = draw(st.sampled_from([("minutes", 0, 59), ("hours", 0, 23), ("months", 1, 12)]))
    first, last = draw(st.integers(low, high)), draw(st.integers(low, high))
    step = draw(st.integers(1, high))
    values, value, distance = set(), first, 0
    while True:
        if distance % step == 0:
            values.add(value)
        if value == last:
            return name, f"{first}-{last}/{step}", frozenset(values)
        value, distance = (value + 1 if value < high else low), distance + 1


@settings(deadline=None, max_examples=500)
@given(_ranges())
def test_a_range_means_what_a_walk_around_its_field_meets(item: tuple[str, str, frozenset[int]]) -> None:
    name, text, values = item
    fields = {"minutes": "0", "hours": "0", "days": "*", "months": "1", "weekdays": "*", name: text}
    assert frozenset(getattr(parse_cron(" ".join(fields.values())), name)) == values


@settings(deadline=None, max_examples=300)
@given(
    st.tuples(_field(0, 59), _field(0, 23), _field(1, 28), _field(1, 12), _field(0, 6)),
    st.datetimes(datetime(2000, 1, 1), datetime(2050, 1, 1)),  # noqa: DTZ001 (wall clocks)
)
def test_croniter_has_the_same_opinion(fields: tuple[str, ...], after: datetime) -> None:
    """Where both take an expression; where they differ by design the cases above say so."""
    cron, after = " ".join(fields), after.replace(microsecond=0)
    expression = parse_cron(cron)
    # croniter is of two minds about fields that name every day without being `*`.
    assume((expression.days is None) == (fields[2] == "*"))
    assume((expression.weekdays is None) == (fields[4] == "*"))
    theirs = croniter(cron, after)
    ours = islice(cron_occurrences(cron, "UTC", Dst(), after.replace(tzinfo=UTC)), 5)
    assert [fire_at.replace(tzinfo=None) for fire_at in ours] == [theirs.get_next(datetime) for _ in range(5)]


def test_asking_again_from_the_last_answer_goes_on() -> None:
    whole = list(islice(cron_occurrences("*/7 3 * * *", "UTC", Dst(), START), 100))
    assert whole == sorted(set(whole))
    after, one_by_one = START, []
    for _ in whole:
        after = next(cron_occurrences("*/7 3 * * *", "UTC", Dst(), after))
        one_by_one.append(after)
    assert one_by_one == whole
    just_before = whole[50] - timedelta(microseconds=1)
    assert next(cron_occurrences("*/7 3 * * *", "UTC", Dst(), just_before)) == whole[50]
