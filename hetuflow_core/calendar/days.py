"""Whether a day is one of a calendar's, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from hetuflow_core.calendar.spec import WEEKDAYS, DayRange, Weekday


class HolidaySets(Protocol):
    """Public holidays by the name of their country, region or market, such as `DE-BY`."""

    def days(self, name: str, year: int) -> Mapping[date, str]:
        """The holidays of a year and what they are called."""


@dataclass(frozen=True, slots=True)
class DaySet:
    """A set of days: of `holidays`, `dates`, `weekdays` and other calendars, without `except_days`."""

    name: str
    holidays: tuple[str, ...] = ()
    dates: tuple[DayRange, ...] = ()
    weekdays: tuple[Weekday, ...] = ()
    calendars: tuple[DaySet, ...] = ()
    except_days: tuple[DayRange, ...] = ()
    holiday_sets: HolidaySets | None = None

    def why(self, day: date) -> str | None:
        """What makes it one of them: the holiday's name, `sat`, the date itself; None if nothing does."""
        if any(day in days for days in self.except_days):
            return None
        if self.holiday_sets is not None:
            for name in self.holidays:
                if (called := self.holiday_sets.days(name, day.year).get(day)) is not None:
                    return called
        if any(day in days for days in self.dates):
            return str(day)
        if (weekday := WEEKDAYS[day.weekday()]) in self.weekdays:
            return weekday.value
        return next((why for part in self.calendars if (why := part.why(day)) is not None), None)
