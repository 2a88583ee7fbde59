"""Has commands back that wait too long at the keeper.

All have the same patience, so the first that comes is the first to go, and one timer does for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Recalls:
    def __init__(self, patience: float) -> None:
        self._patience = patience
        # How to have each back, and when.
        self._waiting: dict[str, tuple[float, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, key: str, recall: Callable[[], None]) -> None:
        """Have it back unless it is settled in time."""
        loop = asyncio.get_running_loop()
        self._waiting[key] = (loop.time() + self._patience, recall)
        if self._timer is None:
            self._timer = loop.call_later(self._patience, self._ring)

    def settle(self, key: str) -> None:
        self._waiting.pop(key, None)

    def _ring(self) -> None:
        loop, self._timer = asyncio.get_running_loop(), None
        for key, (at, recall) in list(self._waiting.items()):
            if at > loop.time():
                self._timer = loop.call_at(at, self._ring)
                return
            del self._waiting[key]
            recall()
