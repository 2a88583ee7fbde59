from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from hetuflow_core.durations import format_duration, format_size, parse_duration, parse_seconds, parse_size
from hetuflow_core.errors import Invalid


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("10m", timedelta(minutes=10)),
        ("2h", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
        ("1h30m", timedelta(minutes=90)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("2.5s", timedelta(seconds=2.5)),
        ("0.001ms", timedelta(microseconds=1)),
        ("0s", timedelta(0)),
        ("90m", timedelta(minutes=90)),
        (" 5s\n", timedelta(seconds=5)),
    ],
)
def test_a_duration_is_read(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected
    assert parse_seconds(text) == expected.total_seconds()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("10", "has no unit: write 10s"),
        ("0", "has no unit"),
        ("", "is not a duration"),
        ("s", "is not a duration"),
        ("-5s", "is not a duration"),
        ("5 s", "is not a duration"),
        ("5S", "is not a duration"),
        ("1w", "is not a duration"),
        ("30m1h", "is not a duration"),
        ("1h1h", "is not a duration"),
        ("1.s", "is not a duration"),
        ("٣s", "is not a duration"),
        ("0.0000001s", "finer than a microsecond"),
        ("0.00000000000000000000000000000000000000000001s", "finer than a microsecond"),
        ("1000000000d", "too long"),
        ("9" * 1000 + "d", "is not a duration"),
        ("9" * 1000, "is not a duration"),
    ],
)
def test_what_is_no_duration_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint) as refusal:
        parse_duration(text)
    assert len(refusal.value.message) < 200


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=500), "500ms"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(seconds=2.5), "2.5s"),
        (timedelta(seconds=60), "1m"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=30), "30d"),
        (timedelta(days=1, microseconds=1), "1d0.000001s"),
    ],
)
def test_a_duration_is_written_in_the_usual_way(duration: timedelta, expected: str) -> None:
    assert format_duration(duration) == expected


def test_a_negative_duration_is_not_written() -> None:
    with pytest.raises(Invalid, match="negative"):
        format_duration(timedelta(seconds=-1))


@given(st.timedeltas(min_value=timedelta(0)))
def test_every_duration_survives_writing_and_reading(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_duration, parse_size):
        with contextlib.suppress(Invalid):
            parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096", 4096),
        ("0", 0),
        ("512Mi", 512 * 1024**2),
        ("512MiB", 512 * 1024**2),
        ("1Gi", 1024**3),
        ("1.5Gi", 1536 * 1024**2),
        ("10MB", 10_000_000),
        ("10M", 10_000_000),
        ("3k", 3000),
        ("3kB", 3000),
        ("3K", 3000),
        ("12B", 12),
        ("2Ti", 2 * 1024**4),
        ("1P", 10**15),
    ],
)
def test_a_size_is_read(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not a size"),
        ("-1", "is not a size"),
        ("1 Mi", "is not a size"),
        ("1mi", "is not a size"),
        ("1X", "is not a size"),
        ("Mi", "is not a size"),
        ("1ki", "unit"),
        ("1.5", "whole number of bytes"),
        ("0.0001Ki", "whole number of bytes"),
    ],
)
def test_what_is_no_size_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0"),
        (1, "1"),
        (4096, "4Ki"),
        (512 * 1024**2, "512Mi"),
        (10_000_000, "10MB"),
        (1000, "1kB"),
        (1001, "1001"),
    ],
)
def test_a_size_is_written_in_the_shortest_way(size: int, expected: str) -> None:
    assert format_size(size) == expected


@given(st.integers(min_value=0, max_value=2**80))
def test_every_size_survives_writing_and_reading(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_a_negative_size_is_not_written() -> None:
    with pytest.raises(Invalid, match="negative"):
        format_size(-1)
