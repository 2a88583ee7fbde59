"""Backfills: fires of a range in the past."""
