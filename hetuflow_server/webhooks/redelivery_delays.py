"""When a delivery that failed is tried again; pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

MOST_ATTEMPTS: Final = 12
_FIRST_PAUSE: Final = timedelta(seconds=5)
_LONGEST_PAUSE: Final = timedelta(hours=1)


def next_pause(attempts: int, random: float) -> timedelta | None:
    """How long to wait after so many attempts; None when there is none left. `random` is from 0 to 1."""
    if attempts >= MOST_ATTEMPTS:
        return None
    whole = min(_FIRST_PAUSE * (1 << (attempts - 1)), _LONGEST_PAUSE)
    # Between half and all of it: what failed together does not come back together.
    return whole * (0.5 + random / 2)


def is_final(status: int | None) -> bool:
    """Whether an answer means that trying again is no use: the address is gone for good."""
    return status == 410  # noqa: PLR2004 - Gone
