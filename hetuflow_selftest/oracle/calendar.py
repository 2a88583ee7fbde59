"""Which instants a schedule names: an own reading of `every` and of cron, as far as self-tests use them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from math import ceil, floor
from typing import Any, Final

_FIELDS: Final = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}


def fires(spec: Mapping[str, Any], after: float, until: float) -> list[int]:
    """Return the seconds since 1970 at which it fires, later than `after` and before `until`."""
    if "every" in spec:
        step = _seconds(spec["every"])
        return list(range((floor(after) // step + 1) * step, ceil(until), step))
    matcher = [_values(text, *limits) for text, limits in zip(spec["cron"].split(), _FIELDS, strict=True)]
    return [second for second in range(floor(after) + 1, ceil(until)) if _matches(second, matcher)]


def _seconds(text: str) -> int:
    match = re.fullmatch(r"(\d+)([smh])", text)
    if match is None:
        raise ValueError(f"the judge does not read the interval {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def _matches(second: int, matcher: list[set[int]]) -> bool:
    at = datetime.fromtimestamp(second, UTC)
    seconds, minutes, hours, days, months, weekdays = matcher
    return (
        at.second in seconds
        and at.minute in minutes
        and at.hour in hours
        and at.day in days
        and at.month in months
        and bool({at.isoweekday(), at.isoweekday() % 7} & weekdays)
    )


def _values(text: str, least: int, most: int) -> set[int]:
    return {value for part in text.split(",") for value in _part(part, least, most)}


def _part(text: str, least: int, most: int) -> Iterator[int]:
    match = re.fullmatch(r"(\*|\d+)(?:-(\d+))?(?:/(\d+))?", text)
    if match is None:
        raise ValueError(f"the judge does not read the cron field {text!r}")
    first = least if match[1] == "*" else int(match[1])
    last = most if match[1] == "*" or (match[3] and not match[2]) else int(match[2] or first)
    return iter(range(first, last + 1, int(match[3] or 1)))
