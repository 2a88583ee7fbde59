"""Pages of lists as the REST API shows them."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]
    next_cursor: str | None
    total: int
    # True when there are more than the server counts.
    total_capped: bool
