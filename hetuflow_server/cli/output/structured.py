"""Results as JSON."""

from __future__ import annotations

from typing import Any

import msgspec


def as_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def as_line(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def as_lines(value: Any) -> list[str]:
    """Return one line per item of a list, or one line for any other value."""
    return [as_line(item) for item in (value if isinstance(value, list | tuple) else [value])]
