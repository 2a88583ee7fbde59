"""Raw documents of kind `calendar`: named sets of days."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Final

from hetuflow_core.calendar import DayRange, PublicHolidays, Weekday
from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile.documents import DEFAULT_NAMESPACE, CalendarSpec
from hetuflow_core.jobfile.nodes import shortened
from hetuflow_core.jobfile.readers.instants import read_weekdays
from hetuflow_core.jobfile.readers.names import read_name
from hetuflow_core.jobfile.value_reader import ValueReader, each

CALENDAR_KEYS: Final = (
    *("kind", "namespace", "name", "labels", "holidays", "dates", "weekdays", "calendars", "except"),
)

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_MOST_DATES: Final = 5000
_MOST_PARTS: Final = 50
_SETS: Final = ("holidays", "dates", "weekdays", "calendars")


def read_calendar(given: ValueReader) -> CalendarSpec | None:
    section = given.section(CALENDAR_KEYS)
    if section is None:
        return None
    name = section.require("name", read_name, "name the calendar")
    faults_before = len(given.faults)
    holidays: tuple[str, ...] = section.read("holidays", lambda given: _several(given, _holidays), ())
    dates: tuple[DayRange, ...] = section.read("dates", _dates, ())
    weekdays: tuple[Weekday, ...] = section.read("weekdays", read_weekdays, ())
    calendars: tuple[str, ...] = section.read("calendars", lambda given: _several(given, read_name), ())
    except_days: tuple[DayRange, ...] = section.read("except", _dates, ())
    if not (holidays or dates or weekdays or calendars) and len(given.faults) == faults_before:
        given.refuse(f"the calendar has no days: use {', '.join(_SETS)}.")
    if name is not None and name in calendars:
        section.present["calendars"].refuse("a calendar is no part of itself: remove it.")
    labels: dict[str, str] = section.read("labels", ValueReader.labels, {})
    namespace = section.read("namespace", read_name, DEFAULT_NAMESPACE)
    if name is None:
        return None
    return CalendarSpec(
        namespace=namespace,
        name=name,
        labels=labels,
        holidays=holidays,
        dates=dates,
        weekdays=weekdays,
        calendars=calendars,
        except_days=except_days,
    )


def read_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:  # such as the 30th of February
        return None


def _several(given: ValueReader, question: Callable[[ValueReader], str | None]) -> tuple[str, ...]:
    """A list of names, or one alone."""
    if isinstance(given.node.value, str):
        one = question(given)
        return () if one is None else (one,)
    if len(given.items() or ()) > _MOST_PARTS:
        given.refuse(f"has more than {_MOST_PARTS} items: put some of them together.")
        return ()
    return tuple(sorted(set(each(given, question))))


def _holidays(given: ValueReader) -> str | None:
    text = given.text()
    if text is None:
        return None
    try:
        PublicHolidays().check(text)
    except Invalid as error:
        given.refuse(error.message)
        return None
    return text


def _dates(given: ValueReader) -> tuple[DayRange, ...]:
    if len(given.items() or ()) > _MOST_DATES:
        given.refuse(f"has more than {_MOST_DATES} dates: write ranges such as 2026-12-24/2026-12-31.")
        return ()
    return tuple(sorted(set(each(given, _days)), key=lambda days: (days.first, days.last)))


def _days(given: ValueReader) -> DayRange | None:
    text = given.text()
    if text is None:
        return None
    first_text, slash, last_text = text.partition("/")
    first, last = read_date(first_text), read_date(last_text if slash else first_text)
    if first is None or last is None:
        given.refuse(
            f'"{shortened(text)}" is no date: write 2026-12-24, or 2026-12-24/2026-12-31 for several.'
        )
        return None
    if last < first:
        given.refuse(f"{last} is before {first}: turn them round.")
        return None
    return DayRange(first, last)
