"""Calendars: named sets of days."""
