"""Other memory for a retry: `x2` for twice as much, or a size."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

import msgspec

from hetuflow_core.durations import format_size, parse_size
from hetuflow_core.errors import Invalid
from hetuflow_core.fields import Form, ValueReader
from hetuflow_core.placement import MOST_MEMORY

_FACTOR: Final = re.compile(r"x([0-9]{1,2}(?:\.[0-9]{1,3})?)")
_LARGEST_FACTOR: Final = 16


class MemoryChange(msgspec.Struct, frozen=True, kw_only=True):
    """`times` what the ended instance had, or a size; exactly one is set."""

    times: Decimal | None = None
    size: int | None = None

    def applied(self, memory: int) -> int:
        """The memory of the retry, given that of the ended instance; so `x2` doubles each time."""
        if self.times is None:
            return self.size or 0
        return int(memory * self.times)


def _read(given: ValueReader) -> MemoryChange | None:
    text = given.words()
    if text is None:
        return None
    factor = _FACTOR.fullmatch(text)
    if factor is not None:
        times = Decimal(factor[1])
        if not 1 < times <= _LARGEST_FACTOR:
            given.refuse(f"must be more than x1 and at most x{_LARGEST_FACTOR}, not {text}.")
            return None
        return MemoryChange(times=times)
    try:
        size = parse_size(text)
    except Invalid as error:
        given.refuse(f"{error.message.removesuffix('.')}, or x2 to double it.")
        return None
    if not 0 < size <= MOST_MEMORY:
        given.refuse("must be more than 0 and at most 1Pi: write another size.")
        return None
    return MemoryChange(size=size)


def _write(change: MemoryChange) -> str:
    return format_size(change.size or 0) if change.times is None else f"x{change.times.normalize():f}"


MEMORY: Final = Form(
    _read,
    {"anyOf": [{"type": "string"}, {"type": "number", "exclusiveMinimum": 0}]},
    _write,
    summary=f"size up to 1Pi, or a factor up to `x{_LARGEST_FACTOR}`",
)
