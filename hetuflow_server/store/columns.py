"""Rows as arrays: one statement for a whole batch, whatever its size, and one plan for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from enum import Enum
from typing import Any


def transpose(row_type: type[Any], rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Return {field: [its value in each row]} for `unnest`."""
    return {field.name: [_plain(getattr(row, field.name)) for row in rows] for field in fields(row_type)}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value
