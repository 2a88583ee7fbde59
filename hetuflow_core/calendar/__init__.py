"""Calendars: named sets of days that schedules skip or are restricted to."""

from hetuflow_core.calendar.days import DaySet, HolidaySets
from hetuflow_core.calendar.public_holidays import PublicHolidays
from hetuflow_core.calendar.spec import WEEKDAYS, DayRange, Weekday

__all__ = ["WEEKDAYS", "DayRange", "DaySet", "HolidaySets", "PublicHolidays", "Weekday"]
