"""Names of events: words separated by dots. Schedules may use patterns that end in `.*`, or `*` for all."""

from __future__ import annotations

import re
from typing import Final

from hetuflow_core.errors import Invalid

LONGEST_NAME: Final = 128
LONGEST_KEY: Final = 512
EXPECTED: Final = "letters, digits, _ - and dots between them, such as file.uploaded (128 characters at most)"

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_ANY: Final = "*"


def check_name(name: str) -> str:
    """Return the name; raise `Invalid` if it is not a valid event name."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise Invalid(f'"{name[:80]}" is not a valid event name: use {EXPECTED}.', code="event.name")
    return name


def check_pattern(pattern: str) -> str:
    """Return the pattern; raise `Invalid` unless it is a name, a name that ends in `.*`, or `*`."""
    if pattern == _ANY:
        return pattern
    check_name(pattern.removesuffix(f".{_ANY}"))
    return pattern


def patterns_of(name: str) -> list[str]:
    """Return all patterns that match the name: the name itself, and each of its prefixes with `.*`."""
    words = name.split(".")
    prefixes = (".".join(words[:count]) for count in range(len(words) - 1, 0, -1))
    return [name, *(f"{prefix}.{_ANY}" for prefix in prefixes), _ANY]
