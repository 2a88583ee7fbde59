"""Cursors: opaque to the caller, a position to us."""

from __future__ import annotations

import base64
from typing import Annotated, Any, TypeVar

import msgspec
from litestar.params import QueryParameter

from hetuflow_core.errors import Invalid

T = TypeVar("T")

DEFAULT_LIMIT = 100
MOST_ITEMS = 500
# Totals are counted up to here; more would cost more than anybody reads.
TOTAL_CAP = 10_000

Limit = Annotated[int, QueryParameter(ge=1, le=MOST_ITEMS, description="Most items in the answer.")]
Cursor = Annotated[str | None, QueryParameter(description="next_cursor of the page before.")]


def encode_cursor(position: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode_cursor(cursor: str | None, position_type: type[T]) -> T | None:
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=position_type)
    except (ValueError, msgspec.MsgspecError) as error:
        raise Invalid("This cursor is not one of this list's.", code="cursor.invalid") from error
