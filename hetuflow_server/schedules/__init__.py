"""Schedules and the fires generated from them."""
