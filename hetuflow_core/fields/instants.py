"""Instants (`2026-12-31T23:59:00+01:00`) and times of day as documents write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time
from typing import Final

from hetuflow_core.fields import json_schema
from hetuflow_core.fields.forms import Form
from hetuflow_core.fields.nodes import shortened
from hetuflow_core.fields.value_reader import ValueReader

MIDNIGHT_AFTER: Final = frozenset({"24:00", "24:00:00"})
"""How the end of a day is written."""

_INSTANT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)(?P<offset>[Zz]|[+-]\d\d:\d\d)?"
)
_TIME: Final = re.compile(r"\d\d:\d\d(:\d\d)?")
_FIRST_YEAR, _LAST_YEAR = 1970, 9899


def _read_instant(given: ValueReader) -> datetime | None:
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


def _instant(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.upper().replace(" ", "T"))
    except ValueError:  # such as the 30th of February
        return None


def _write_instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def is_time_of_day(text: str) -> bool:
    return _TIME.fullmatch(text) is not None


def _read_time(given: ValueReader) -> time | None:
    """`24:00` is the midnight that ends the day, and reads as 00:00."""
    text = given.text()
    if text is None:
        return None
    moment = _time(text) if is_time_of_day(text) else None
    if moment is None:
        given.refuse(f'"{shortened(text)}" is no time of day: write one such as "22:30", in quotes.')
    return moment


def _time(text: str) -> time | None:
    try:
        return time.fromisoformat("00:00" if text in MIDNIGHT_AFTER else text)
    except ValueError:
        return None


def _write_time(moment: time) -> str:
    return moment.isoformat() if moment.second else moment.isoformat("minutes")


INSTANT: Final = Form(
    _read_instant, json_schema.INSTANT, _write_instant, summary="instant, such as `2026-12-31T23:59:00+01:00`"
)
TIME_OF_DAY: Final = Form(
    _read_time,
    {"type": "string", "pattern": r"^\d\d:\d\d(:\d\d)?$"},
    _write_time,
    summary='time of day, such as `"22:30"`',
)
