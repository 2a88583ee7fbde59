"""Parse times on the command line: a time, or a duration before or after now."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from hetuflow_core.durations import parse_duration
from hetuflow_core.errors import Invalid


def parse_since(text: str, now: datetime, option: str = "--since") -> datetime:
    """Parse a time, or a duration before `now`."""
    parsed = _instant(text) or _offset(text, now, -1)
    if parsed is None:
        raise click.BadParameter(
            f"{text!r} is not a time: write a duration (2h, 3d) or a time such as 2026-07-01T00:00:00Z.",
            param_hint=option,
        )
    return parsed


def parse_coming(text: str, now: datetime, option: str) -> datetime:
    """Parse a time, or a duration after `now`."""
    parsed = _instant(text) or _offset(text, now, 1)
    if parsed is None:
        raise click.BadParameter(
            f"{text!r} is not a time: write a duration (10m, 2h) or a time such as 2026-07-01T06:00:00Z.",
            param_hint=option,
        )
    return parsed


def parse_instant(text: str, option: str) -> datetime:
    parsed = _instant(text)
    if parsed is None:
        raise click.BadParameter(
            f"{text!r} is not a time: write one such as 2026-07-01 or 2026-07-01T06:00:00Z.",
            param_hint=option,
        )
    return parsed


def _instant(text: str) -> datetime | None:
    try:
        # A time without a zone is local time.
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return None


def _offset(text: str, now: datetime, sign: int) -> datetime | None:
    try:
        distance: timedelta = parse_duration(text)
        return now + sign * distance
    except (Invalid, OverflowError):
        return None
