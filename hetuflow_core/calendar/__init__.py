"""Calendars: named sets of days on which schedules fire, or do not (`Calendar.why`)."""

from hetuflow_core.calendar.deciding import Calendar, HolidaySets
from hetuflow_core.calendar.public_holidays import PublicHolidays
from hetuflow_core.calendar.spec import WEEKDAYS, Days, Weekday

__all__ = ["WEEKDAYS", "Calendar", "Days", "HolidaySets", "PublicHolidays", "Weekday"]
