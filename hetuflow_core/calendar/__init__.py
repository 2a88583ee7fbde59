"""Calendars: named sets of days on which schedules fire, or do not (`DaySet.why`)."""

from hetuflow_core.calendar.days import DaySet, HolidaySets
from hetuflow_core.calendar.public_holidays import PublicHolidays
from hetuflow_core.calendar.spec import WEEKDAYS, DayRange, Weekday

__all__ = ["WEEKDAYS", "DayRange", "DaySet", "HolidaySets", "PublicHolidays", "Weekday"]
