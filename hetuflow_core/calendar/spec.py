"""Calendars as both sides hold them: named sets of days; every field has the name it has in the job file."""

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
    """From one day to another, both part of it; written `2026-12-24` or `2026-12-24/2026-12-31`."""

    first: date
    last: date

    def __contains__(self, day: date) -> bool:
        return self.first <= day <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}/{self.last}"
