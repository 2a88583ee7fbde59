"""Parse cron expressions into the sets of numbers they select; every error names the faulty field.

    [second] minute hour day-of-month month day-of-week

Fields take `*`, numbers, names (JAN, MON), ranges `a-b` (also over the end: FRI-MON), steps `*/n`, `a-b/n`
and `a/n`, and lists of these. Days of the month also take `L` (the last), `LW` (the last of Monday to Friday)
and `15W` (the one of Monday to Friday that is nearest to the 15th, in the same month); days of the week also
take `FRI#2` (the second Friday) and `FRIL` or `L5` (the last one). `?` is `*` in either. Sunday is 0 and 7.

croniter expands each item. Before that, this module rewrites the item to a form that croniter cannot
misread: croniter 6 turns `5-5` into every value, wraps `59/52` around, and miscounts steps of ranges that
wrap around. Forms that croniter accepts but that have no meaning here (`R`, `H`, a year, steps larger than
the field) are refused first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hetuflow_core.errors import Invalid

MACROS: Final[Mapping[str, str]] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
LAST: Final = 0
"""Represents the last one where days are counted from 1: `L` is day 0, `FRIL` the 0th Friday."""

_LONGEST: Final = 1000
_SHOWN: Final = 64
_PARSED: Final = 8192
_MONTH_LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EVERY_DAY: Final = frozenset(range(1, 32))
_HOURS_PER_DAY: Final = 24
_DAYS_PER_WEEK: Final = 7
_MOST_OF_A_WEEKDAY: Final = 5


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    # Position in the fields that croniter returns: it puts seconds last.
    index: int
    low: int
    high: int
    names: tuple[str, ...] = ()
    first_name: int = 0

    @property
    def size(self) -> int:
        """How many values the field has. Sunday is one day, although it has two numbers."""
        return self.high - self.low + 1 - (self is _WEEKDAY)

    def number(self, text: str) -> int:
        if text.isascii() and text.isdigit():
            value = int(text)
        elif text.lower() in self.names:
            value = self.names.index(text.lower()) + self.first_name
        else:
            example = f", or a name such as {self.names[0].upper()}" if self.names else ""
            raise _fault(self, f'"{text[:_SHOWN]}" is not a number{example}')
        if not self.low <= value <= self.high:
            raise _fault(self, f"{text[:_SHOWN]} is not between {self.low} and {self.high}")
        return value


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SECOND: Final = _Field("second", 5, 0, 59)
_MINUTE: Final = _Field("minute", 0, 0, 59)
_HOUR: Final = _Field("hour", 1, 0, 23)
_DAY: Final = _Field("day of month", 2, 1, 31)
_MONTH: Final = _Field("month", 3, 1, 12, _MONTHS, 1)
_WEEKDAY: Final = _Field("day of week", 4, 0, 7, _WEEKDAYS)

_NEAREST: Final = re.compile(r"([0-9]+)w", re.IGNORECASE)
_NTH: Final = re.compile(r"([a-z]+|[0-9]+)#([0-9]+)", re.IGNORECASE)
_LAST_WEEKDAY: Final = re.compile(r"l([0-9]+)|([0-9]+|[a-z]{3})l", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: a cheap cache key
class CronExpression:
    """What an expression means. Days of the week count from Monday = 0, as Python does."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: frozenset[int]
    # None: the field is `*` or names every day, and leaves it to the other one. Both given: either suffices.
    days: MonthDays | None
    weekdays: Weekdays | None
    # Hours with a wildcard, a step or all 24 of them: the schedule follows elapsed time, not the wall clock.
    follows_elapsed_time: bool


@dataclass(frozen=True, slots=True)
class MonthDays:
    """Days of the month; LAST is the last one, in `nearest` (to be moved to a working day) as well."""

    plain: frozenset[int]
    nearest: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Weekdays:
    plain: frozenset[int]
    nth: frozenset[tuple[int, int]] = frozenset()  # (weekday, which of the month); LAST is the last one


@lru_cache(maxsize=_PARSED)
def parse_cron(text: str) -> CronExpression:
    """Raise `Invalid` with the reason unless this is an expression that fires some day."""
    fields = _fields(text)
    second, minute, hour, day, month, weekday = fields
    hours, months = _numbers(_HOUR, hour), _numbers(_MONTH, month)
    expression = CronExpression(
        seconds=tuple(sorted(_numbers(_SECOND, second))),
        minutes=tuple(sorted(_numbers(_MINUTE, minute))),
        hours=tuple(sorted(hours)),
        months=months,
        days=_days(day),
        weekdays=_weekdays(weekday),
        follows_elapsed_time="*" in hour or "/" in hour or len(hours) == _HOURS_PER_DAY,
    )
    _refuse_impossible_dates(expression, day)
    return expression


def _fields(text: str) -> list[str]:
    """The six fields, seconds first."""
    written = text.strip()
    if len(written) > _LONGEST:
        raise Invalid(f"the cron expression is longer than {_LONGEST} characters: shorten it.")
    if written.lower() == "@reboot":
        raise Invalid('"@reboot" has no meaning for work that belongs to no host: use a time.')
    if written.startswith("@"):
        macro = MACROS.get(written.lower())
        if macro is None:
            raise Invalid(f'"{written[:_SHOWN]}" is not a known macro: use one of {", ".join(MACROS)}.')
        written = macro
    fields = written.split()
    if len(fields) == 5:  # noqa: PLR2004 (as the message says)
        return ["0", *fields]
    if len(fields) == 6:  # noqa: PLR2004
        return fields
    raise Invalid(
        f"a cron expression has 5 fields, or 6 with seconds first, not {len(fields)}: "
        "write minute hour day-of-month month day-of-week, such as 0 2 * * *."
    )


def _numbers(field: _Field, text: str) -> frozenset[int]:
    return frozenset(number for item in text.split(",") for number in _item(field, item))


def _item(field: _Field, item: str) -> tuple[int, ...]:
    """Return the values of one item of a list: `*`, `5`, `5-10`, each optionally with `/n`."""
    span, slash, step_text = item.partition("/")
    if not item:
        raise _fault(field, "nothing between two commas or at an end")
    step = 1
    if slash:
        if not (step_text.isascii() and step_text.isdigit() and 0 < int(step_text) <= field.high):
            raise _fault(field, f'"{step_text[:_SHOWN]}" is not a step between 1 and {field.high}')
        step = int(step_text)
    top = field.low + field.size - 1
    if span == "*":
        return _expand(field, field.low, top, step)
    low_text, dash, high_text = span.partition("-")
    low = field.number(low_text)
    if not dash:
        return _expand(field, low, max(low, top) if slash else low, step)
    high = field.number(high_text)
    if low > high:  # wraps around: FRI-MON, 22-2
        high += field.size
    return _expand(field, low, high, step)


@lru_cache(maxsize=_PARSED)  # croniter takes 60 µs for an item, and most expressions share their items
def _expand(field: _Field, low: int, high: int, step: int) -> tuple[int, ...]:
    """Expand a range by croniter. A range that passes the end of the field becomes one range per round."""
    from croniter import CroniterError, croniter  # noqa: PLC0415 (slow to load, and few commands need it)

    values: list[int] = []
    while low <= high:
        passed = (low - field.low) // field.size * field.size
        top = min(high, passed + field.low + field.size - 1)
        first, last = low - passed, top - passed
        fields = ["*"] * 6
        fields[(field.index + 1) % 6] = f"{first}-{last}/{step}" if first + step <= last else str(first)
        try:
            expanded = croniter.expand(" ".join(fields), second_at_beginning=True)[0][field.index]
        except CroniterError as error:
            raise _fault(field, f"{error}") from error
        # croniter shortens a full field to `*`.
        values += range(first, last + 1) if expanded == ["*"] else map(int, expanded)
        low += (top - low) // step * step + step
    return tuple(values)


def _days(text: str) -> MonthDays | None:
    if text == "?":
        return None
    plain: set[int] = set()
    nearest: set[int] = set()
    for item in text.split(","):
        if item.upper() == "L":
            plain.add(LAST)
        elif item.upper() == "LW":
            nearest.add(LAST)
        elif match := _NEAREST.fullmatch(item):
            nearest.add(_DAY.number(match[1]))
        else:
            plain.update(_item(_DAY, item))
    return MonthDays(frozenset(plain), frozenset(nearest)) if _EVERY_DAY - plain else None


def _weekdays(text: str) -> Weekdays | None:
    if text == "?":
        return None
    plain: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in text.split(","):
        if match := _NTH.fullmatch(item):
            which = int(match[2])
            if not 1 <= which <= _MOST_OF_A_WEEKDAY:
                raise _fault(_WEEKDAY, f"a month has no {which}th of a weekday, only 1 to 5")
            nth.add((_python_weekday(_WEEKDAY.number(match[1])), which))
        elif match := _LAST_WEEKDAY.fullmatch(item):
            nth.add((_python_weekday(_WEEKDAY.number(match[1] or match[2])), LAST))
        else:
            plain.update(_python_weekday(number) for number in _item(_WEEKDAY, item))
    return Weekdays(frozenset(plain), frozenset(nth)) if len(plain) < _DAYS_PER_WEEK else None


def _python_weekday(number: int) -> int:
    return (number - 1) % _DAYS_PER_WEEK


def _refuse_impossible_dates(expression: CronExpression, day: str) -> None:
    """Every other expression fires within forty years: so long may a fifth Friday in February take."""
    days = expression.days
    if days is None or expression.weekdays is not None:
        return
    # LAST is less than any day, and every month has one.
    if min(days.plain | days.nearest) > max(_MONTH_LENGTHS[month - 1] for month in expression.months):
        months = ", ".join(_MONTHS[month - 1].upper() for month in sorted(expression.months))
        raise Invalid(
            f"this never fires: {months} has no day {day}; choose a day that exists, or L for the last."
        )


def _fault(field: _Field, problem: str) -> Invalid:
    return Invalid(f"the {field.name} of the cron expression is wrong: {problem}; correct it.")
