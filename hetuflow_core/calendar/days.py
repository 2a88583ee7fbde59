"""Whether a day belongs to a calendar, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from hetuflow_core.calendar.spec import WEEKDAYS, DayRange, Weekday


class HolidaySets(Protocol):
    """Public holidays by country, region or market, such as `DE-BY`."""

    def days(self, name: str, year: int) -> Mapping[date, str]:
        """Return the holidays of a year with their names."""


@dataclass(frozen=True, slots=True)
class DaySet:
    """The days of `holidays`, `dates`, `weekdays` and other calendars, without `except_days`."""

    name: str
    holidays: tuple[str, ...] = ()
    dates: tuple[DayRange, ...] = ()
    weekdays: tuple[Weekday, ...] = ()
    calendars: tuple[DaySet, ...] = ()
    except_days: tuple[DayRange, ...] = ()
    holiday_sets: HolidaySets | None = None

    def why(self, day: date) -> str | None:
        """Return why the set contains the day: the holiday's name, `sat` or the date; None if it does not."""
        if any(day in days for days in self.except_days):
            return None
        if self.holiday_sets is not None:
            for name in self.holidays:
                if (holiday := self.holiday_sets.days(name, day.year).get(day)) is not None:
                    return holiday
        if any(day in days for days in self.dates):
            return str(day)
        if (weekday := WEEKDAYS[day.weekday()]) in self.weekdays:
            return weekday.value
        return next((why for part in self.calendars if (why := part.why(day)) is not None), None)
