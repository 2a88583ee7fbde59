"""Pages of lists in the REST API."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]
    next_cursor: str | None
    total: int
    # True if the server stopped counting at its limit.
    total_capped: bool
