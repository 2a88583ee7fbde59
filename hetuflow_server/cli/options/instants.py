"""Times as people write them: a time, or how long ago or from now."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from hetuflow_core.durations import parse_duration
from hetuflow_core.errors import Invalid


def parse_since(text: str, now: datetime, option: str = "--since") -> datetime:
    """A time, or how long ago it was."""
    found = _instant(text) or _offset(text, now, -1)
    if found is None:
        raise click.BadParameter(
            f"{text!r} is no time: write how long ago (2h, 3d) or a time such as 2026-07-01T00:00:00Z.",
            param_hint=option,
        )
    return found


def parse_coming(text: str, now: datetime, option: str) -> datetime:
    """A time, or how long it is until then."""
    found = _instant(text) or _offset(text, now, 1)
    if found is None:
        raise click.BadParameter(
            f"{text!r} is no time: write how long from now (10m, 2h) or a time such as 2026-07-01T06:00:00Z.",
            param_hint=option,
        )
    return found


def parse_instant(text: str, option: str) -> datetime:
    found = _instant(text)
    if found is None:
        raise click.BadParameter(
            f"{text!r} is no time: write one such as 2026-07-01 or 2026-07-01T06:00:00Z.", param_hint=option
        )
    return found


def _instant(text: str) -> datetime | None:
    try:
        # A time without a zone is meant as the clock on the wall shows it.
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return None


def _offset(text: str, now: datetime, sign: int) -> datetime | None:
    try:
        distance: timedelta = parse_duration(text)
        return now + sign * distance
    except (Invalid, OverflowError):
        return None
