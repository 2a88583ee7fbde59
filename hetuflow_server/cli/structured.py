"""Results for other programs."""

from __future__ import annotations

from typing import Any

import msgspec


def as_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def as_line(value: Any) -> str:
    return msgspec.json.encode(value).decode()
