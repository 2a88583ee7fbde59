"""Commands about schedules, backfills and calendars."""
