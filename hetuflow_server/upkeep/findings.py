"""What the doctor finds, and how it says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

# At most so many of each kind are looked at, and mended, at once.
BATCH: Final = 200
_SHOWN: Final = 5


class Finding(msgspec.Struct, frozen=True):
    """One kind of thing that is not as it should be."""

    check: str
    message: str
    count: int
    repaired: int = 0

    @property
    def left(self) -> int:
        return self.count - self.repaired


def sentence(what: str, named: Sequence[object]) -> str:
    shown = ", ".join(map(str, named[:_SHOWN]))
    return f"{what}: {shown}{', …' if len(named) > _SHOWN else ''}."
