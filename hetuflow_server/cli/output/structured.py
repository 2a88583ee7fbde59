"""Results for other programs."""

from __future__ import annotations

from typing import Any

import msgspec


def as_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def as_line(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def as_lines(value: Any) -> list[str]:
    """One line per item of a list, one line for anything else."""
    return [as_line(one) for one in (value if isinstance(value, list | tuple) else [value])]
