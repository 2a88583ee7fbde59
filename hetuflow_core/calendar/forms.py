"""Days and weekdays as documents write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Final

from hetuflow_core.calendar.public_holidays import PublicHolidays
from hetuflow_core.calendar.spec import WEEKDAYS, DayRange, Weekday
from hetuflow_core.fields import Form, ValueReader, checked, distinct, several
from hetuflow_core.fields.json_schema import TEXT
from hetuflow_core.fields.nodes import shortened
from hetuflow_core.fields.value_reader import listed

MOST_PARTS: Final = 50
TOO_MANY_PARTS: Final = f"has more than {MOST_PARTS} items: put some of them together."
_MOST_DATES: Final = 5000
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


def _read_weekday(given: ValueReader) -> Weekday | None:
    text = given.text()
    if text is None:
        return None
    name = text.lower().removesuffix("day")
    name = {"tues": "tue", "wednes": "wed", "thurs": "thu", "satur": "sat"}.get(name, name)
    if name not in list(Weekday):
        given.refuse(f'"{shortened(text)}" is not a weekday: use {listed(WEEKDAYS)}.')
        return None
    return Weekday(name)


def _in_order_of_the_week(weekdays: Iterable[Weekday]) -> tuple[Weekday, ...]:
    named = set(weekdays)
    return tuple(weekday for weekday in WEEKDAYS if weekday in named)


def _read_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:  # such as the 30th of February
        return None


def _read_days(given: ValueReader) -> DayRange | None:
    text = given.text()
    if text is None:
        return None
    first_text, slash, last_text = text.partition("/")
    first, last = _read_date(first_text), _read_date(last_text if slash else first_text)
    if first is None or last is None:
        given.refuse(
            f'"{shortened(text)}" is not a date: write 2026-12-24, or 2026-12-24/2026-12-31 for several.'
        )
        return None
    if last < first:
        given.refuse(f"{last} is before {first}: turn them round.")
        return None
    return DayRange(first, last)


def _in_order_of_time(days: Iterable[DayRange]) -> tuple[DayRange, ...]:
    return tuple(sorted(set(days), key=lambda one: (one.first, one.last)))


WEEKDAY_LIST: Final = several(
    Form(
        _read_weekday,
        {
            "anyOf": [
                {"enum": [weekday.value for weekday in WEEKDAYS]},
                {
                    "type": "string",
                    "pattern": "^(?i:mon|tue|tues|wed|wednes|thu|thurs|fri|sat|satur|sun)(?i:day)?$",
                },
            ]
        },
        lambda weekday: weekday.value,
        summary="weekdays, such as `mon`",
    ),
    _in_order_of_the_week,
)
DATES: Final = several(
    Form(
        _read_days,
        {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d(/\d{4}-\d\d-\d\d)?$"},
        str,
        summary="days, such as `2026-12-24` or `2026-12-24/2026-12-31`",
    ),
    _in_order_of_time,
    most=_MOST_DATES,
    too_many=f"has more than {_MOST_DATES} dates: write ranges such as 2026-12-24/2026-12-31.",
)
HOLIDAYS: Final = several(
    checked(lambda text: PublicHolidays().check(text), TEXT, summary="country, region or market"),
    distinct,
    most=MOST_PARTS,
    too_many=TOO_MANY_PARTS,
    alone=str,
)
