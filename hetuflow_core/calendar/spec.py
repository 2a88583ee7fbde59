"""The definition of a calendar; fields have the same names as in the job file."""

from __future__ import annotations

from datetime import date
from enum import StrEnum

import msgspec


class Weekday(StrEnum):
    """In the order of `date.weekday()`."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


WEEKDAYS = tuple(Weekday)


class DayRange(msgspec.Struct, frozen=True):
    """An inclusive range of days; written `2026-12-24` or `2026-12-24/2026-12-31`."""

    first: date
    last: date

    def __contains__(self, day: date) -> bool:
        return self.first <= day <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}/{self.last}"
