"""The wall-clock times of a cron expression, in order and without a zone.

Days are computed per month, so a rare expression examines a few hundred months at worst. The times of a day
are the same every day.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from datetime import date, datetime, time
from functools import lru_cache
from typing import Final

from hetuflow_core.schedule.cron_syntax import LAST, CronExpression, MonthDays, Weekdays

_DAYS_PER_WEEK: Final = 7
_MONTHS_PER_YEAR: Final = 12
_SATURDAY: Final = 5
_SUNDAY: Final = 6
_MONTHS_KEPT: Final = 16_384


def wall_times(expression: CronExpression, start: datetime, end: datetime) -> Iterator[datetime]:
    """Yield naive times from `start`, a whole second, to `end`, exclusive."""
    for day in matching_days(expression, start.date(), end.date()):
        for moment in _times_on(expression, day, start.time() if day == start.date() else time.min):
            if moment >= end:
                return
            yield moment


def matching_days(expression: CronExpression, first: date, last: date) -> Iterator[date]:
    year, month = first.year, first.month
    while (year, month) <= (last.year, last.month):
        if month in expression.months:
            for number in days_of_month(expression, year, month):
                day = date(year, month, number)
                if first <= day <= last:
                    yield day
        year, month = (year, month + 1) if month < _MONTHS_PER_YEAR else (year + 1, 1)


@lru_cache(maxsize=_MONTHS_KEPT)
def days_of_month(expression: CronExpression, year: int, month: int) -> tuple[int, ...]:
    weekday_of_first, length = monthrange(year, month)
    days, weekdays = expression.days, expression.weekdays
    if days is None and weekdays is None:
        return tuple(range(1, length + 1))
    matching: set[int] = set()
    if days is not None:
        matching |= _by_number(days, weekday_of_first, length)
    if weekdays is not None:
        matching |= _by_weekday(weekdays, weekday_of_first, length)
    return tuple(sorted(matching))


def _by_number(days: MonthDays, weekday_of_first: int, length: int) -> set[int]:
    plain = {length if day == LAST else day for day in days.plain if day <= length}
    nearest = {
        _working_day(length if day == LAST else day, weekday_of_first, length)
        for day in days.nearest
        if day <= length
    }
    return plain | nearest


def _working_day(day: int, weekday_of_first: int, length: int) -> int:
    """Return the nearest day from Monday to Friday within the month."""
    weekday = (weekday_of_first + day - 1) % _DAYS_PER_WEEK
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


def _by_weekday(weekdays: Weekdays, weekday_of_first: int, length: int) -> set[int]:
    def all_of(weekday: int) -> range:
        return range(1 + (weekday - weekday_of_first) % _DAYS_PER_WEEK, length + 1, _DAYS_PER_WEEK)

    matching = {day for weekday in weekdays.plain for day in all_of(weekday)}
    for weekday, which in weekdays.nth:
        candidates = all_of(weekday)
        if which == LAST:
            matching.add(candidates[-1])
        elif which <= len(candidates):
            matching.add(candidates[which - 1])
    return matching


def _times_on(expression: CronExpression, day: date, begin: time) -> Iterator[datetime]:
    year, month, number = day.year, day.month, day.day
    hours, minutes, seconds = expression.hours, expression.minutes, expression.seconds
    for hour in hours[bisect_left(hours, begin.hour) :]:
        same_hour = hour == begin.hour
        for minute in minutes[bisect_left(minutes, begin.minute) :] if same_hour else minutes:
            same_minute = same_hour and minute == begin.minute
            for second in seconds[bisect_left(seconds, begin.second) :] if same_minute else seconds:
                yield datetime(year, month, number, hour, minute, second)  # noqa: DTZ001 (a wall clock has no zone)
