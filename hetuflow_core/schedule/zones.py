"""Time zones by name, and their clock changes.

`zoneinfo` only maps single instants, so the clock changes of a year are searched once and cached. Instants
are naive UTC, because naive arithmetic is faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from hetuflow_core.errors import Invalid

LAST_YEAR: Final = 9900
"""Schedules end here, because the range of `datetime` ends soon after."""

_NAME: Final = re.compile(r"[A-Za-z0-9_+-]{1,64}(/[A-Za-z0-9_+-]{1,64}){0,3}")
# The meaning of these names depends on the host, or they are not zones.
_NO_ZONES: Final = frozenset(
    {"localtime", "posixrules", "Factory", "leapseconds", "tzdata", "zone", "iso3166"}
)
_OFFSET: Final = re.compile(r"(utc|gmt|z)?[+-]\d{1,2}(:?\d\d)?", re.IGNORECASE)
_SHOWN: Final = 64
_YEARS_KEPT: Final = 4096
_ZONES_KEPT: Final = 1024
# Clocks do not change twice within a day.
_SEARCH_STEP: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A change of the UTC offset: a larger offset leaves a gap, a smaller offset repeats a period."""

    at: datetime
    before: timedelta
    after: timedelta


@dataclass(frozen=True, slots=True)
class Stretch:
    """A period of constant offset. `change` is the clock change at its start."""

    start: datetime
    end: datetime
    offset: timedelta
    change: ClockChange | None


@lru_cache(maxsize=_ZONES_KEPT)
def zone(name: str) -> ZoneInfo:
    """Return the zone; raise `Invalid` with a suggestion if the name is unknown."""
    known = _lookup(name)
    if known is not None:
        return known
    if _OFFSET.fullmatch(name):
        raise Invalid(f'"{name}" is an offset, not a time zone: write a name such as Europe/Berlin.')
    close = _close_name(name)
    hint = f'did you mean "{close}"?' if close else "write a name such as Europe/Berlin or UTC."
    raise Invalid(f'"{name[:_SHOWN]}" is not a known time zone: {hint}')


def stretches(name: str, start: datetime, end: datetime) -> Iterator[Stretch]:
    """Yield the periods from `start` to `end`; split by year, so that few clock changes are computed."""
    while start < end:
        year_end = min(datetime(start.year + 1, 1, 1), end)  # noqa: DTZ001 (naive UTC, see above)
        change = None
        for following in changes(name, start.year):
            if following.at >= year_end:
                break
            if following.at > start:
                yield Stretch(start, following.at, following.before, change)
            if following.at >= start:
                start, change = following.at, following
        yield Stretch(start, year_end, offset_at(name, start), change)
        start = year_end


@lru_cache(maxsize=_YEARS_KEPT)
def changes(name: str, year: int) -> tuple[ClockChange, ...]:
    """Return the clock changes of a UTC year."""
    clock_changes = []
    at, end = datetime(year, 1, 1), datetime(year + 1, 1, 1)  # noqa: DTZ001
    # A change at the first instant of the year belongs to that year.
    before = offset_at(name, at - _SECOND)
    at -= _SECOND
    while at < end - _SECOND:
        later = min(at + _SEARCH_STEP, end - _SECOND)
        after = offset_at(name, later)
        if after != before:
            clock_changes.append(ClockChange(_first_with(name, after, at, later), before, after))
            before = after
        at = later
    return tuple(clock_changes)


def offset_at(name: str, instant: datetime) -> timedelta:
    offset = instant.replace(tzinfo=UTC).astimezone(zone(name)).utcoffset()
    return offset if offset is not None else timedelta(0)


def _lookup(name: str) -> ZoneInfo | None:
    if not _NAME.fullmatch(name) or name in _NO_ZONES:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # "Europe" is a folder
        return None


def _first_with(name: str, offset: timedelta, low: datetime, high: datetime) -> datetime:
    """Return the first whole second after `low`, at most `high`, that has the offset."""
    while high - low > _SECOND:
        middle = low + (high - low) // _SECOND // 2 * _SECOND
        if offset_at(name, middle) == offset:
            high = middle
        else:
            low = middle
    return high


def _close_name(name: str) -> str | None:
    known = {known.lower(): known for known in available_timezones() - _NO_ZONES}
    if exact := known.get(name.lower()):
        return exact
    by_city = {lower.rpartition("/")[2]: proper for lower, proper in sorted(known.items(), reverse=True)}
    city = re.sub(r"[^a-z0-9]+", "_", name[:_SHOWN].lower())
    if city in by_city:
        return by_city[city]
    close = get_close_matches(name[:_SHOWN].lower(), known, 1)
    return known[close[0]] if close else None
