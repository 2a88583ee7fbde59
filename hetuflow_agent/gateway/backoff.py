"""How long to wait before asking again: full jitter, so that agents do not all return at the same moment."""

from __future__ import annotations

import random
from typing import Final

from hetuflow_core.runtime.loop import backoff_delay

_FIRST: Final = 0.2
_LONGEST: Final = 15.0


class Backoff:
    """Counts failures in a row; `rng` is an argument so that tests know the draw."""

    def __init__(self, rng: random.Random, *, first: float = _FIRST, longest: float = _LONGEST) -> None:
        self.failures = 0
        self._rng = rng
        self._first = first
        self._longest = longest

    def fail(self, retry_after: float | None = None) -> float:
        """Count a failure; the seconds to wait, never less than what the server asked for."""
        self.failures += 1
        drawn = self._rng.uniform(0.0, backoff_delay(self.failures, self._first, self._longest))
        return drawn if retry_after is None else retry_after + drawn

    def succeed(self) -> None:
        self.failures = 0
