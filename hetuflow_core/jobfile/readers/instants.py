"""Instants (`2026-12-31T23:59:00+01:00`), times of day and weekdays as job files write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time
from typing import Final

from hetuflow_core.calendar import WEEKDAYS, Weekday
from hetuflow_core.fields.nodes import shortened
from hetuflow_core.fields.value_reader import ValueReader, each, listed

_INSTANT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)(?P<offset>[Zz]|[+-]\d\d:\d\d)?"
)
MIDNIGHT_AFTER: Final = frozenset({"24:00", "24:00:00"})
"""How the end of a day is written."""

_TIME: Final = re.compile(r"\d\d:\d\d(:\d\d)?")
_FIRST_YEAR, _LAST_YEAR = 1970, 9899


def read_instant(given: ValueReader) -> datetime | None:
    text = given.text()
    if text is None:
        return None
    match = _INSTANT.fullmatch(text)
    at = _instant(text) if match else None
    if match is None or at is None:
        given.refuse(f'"{shortened(text)}" is not an instant: write one such as 2026-12-31T23:59:00+01:00.')
        return None
    if match["offset"] is None:
        given.refuse(f"has no offset: write {shortened(text)}Z for UTC, or one such as +01:00 behind it.")
        return None
    if at.microsecond % 1000:
        given.refuse("is finer than a millisecond: round it.")
        return None
    if not _FIRST_YEAR < at.year < _LAST_YEAR:
        given.refuse(f"the year must be between {_FIRST_YEAR + 1} and {_LAST_YEAR - 1}, not {at.year}.")
        return None
    return at.astimezone(UTC)


def format_instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def is_time_of_day(text: str) -> bool:
    return _TIME.fullmatch(text) is not None


def read_time_of_day(given: ValueReader) -> time | None:
    """`24:00` is the midnight that ends the day, and reads as 00:00."""
    text = given.text()
    if text is None:
        return None
    moment = _time(text) if is_time_of_day(text) else None
    if moment is None:
        given.refuse(f'"{shortened(text)}" is no time of day: write one such as "22:30", in quotes.')
    return moment


def format_time_of_day(moment: time) -> str:
    return moment.isoformat() if moment.second else moment.isoformat("minutes")


def read_weekdays(given: ValueReader) -> tuple[Weekday, ...]:
    named = set(each(given, _weekday))
    return tuple(weekday for weekday in WEEKDAYS if weekday in named)


def _weekday(given: ValueReader) -> Weekday | None:
    text = given.text()
    if text is None:
        return None
    name = text.lower().removesuffix("day")
    name = {"tues": "tue", "wednes": "wed", "thurs": "thu", "satur": "sat"}.get(name, name)
    if name not in list(Weekday):
        given.refuse(f'"{shortened(text)}" is no weekday: use {listed(WEEKDAYS)}.')
        return None
    return Weekday(name)


def _instant(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.upper().replace(" ", "T"))
    except ValueError:  # such as the 30th of February
        return None


def _time(text: str) -> time | None:
    try:
        return time.fromisoformat("00:00" if text in MIDNIGHT_AFTER else text)
    except ValueError:
        return None
