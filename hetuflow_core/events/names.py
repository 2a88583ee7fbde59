"""Names of events: words with dots between them. A schedule may end one in `.*`, or take all with `*`."""

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
    """Return it; raise `Invalid` unless an event may be called so."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise Invalid(f'"{name[:80]}" is no name of an event: use {EXPECTED}.', code="event.name")
    return name


def check_pattern(pattern: str) -> str:
    """Return it; raise `Invalid` unless it is a name, or a name that ends in `.*`, or `*`."""
    if pattern == _ANY:
        return pattern
    check_name(pattern.removesuffix(f".{_ANY}"))
    return pattern


def patterns_of(name: str) -> list[str]:
    """All patterns that mean an event of this name: itself, and `.*` behind each of its beginnings."""
    words = name.split(".")
    beginnings = (".".join(words[:count]) for count in range(len(words) - 1, 0, -1))
    return [name, *(f"{beginning}.{_ANY}" for beginning in beginnings), _ANY]
