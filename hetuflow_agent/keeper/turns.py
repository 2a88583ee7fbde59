"""Who may run, of those that take a slot; and when it is time to tell the agent what is new."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

# While much happens the agent hears of it together: what one message costs it is as much as several tasks do.
TOGETHER: Final = 0.01


class Line:
    """As many hold a slot as there are slots; the others wait in the order they came."""

    def __init__(self) -> None:
        # All that come, until an agent says otherwise.
        self._slots: float = math.inf
        self._holders: set[str] = set()
        self._waiting: deque[str] = deque()

    def resize(self, slots: int) -> None:
        self._slots = slots

    def join(self, key: str) -> None:
        self._waiting.append(key)

    def leave(self, key: str) -> None:
        self._holders.discard(key)

    def waits(self, key: str) -> bool:
        return key not in self._holders and key in self._waiting

    def next(self) -> str | None:
        """Whose turn it is now; it holds a slot from here on, until it leaves."""
        if not self._waiting or len(self._holders) >= self._slots:
            return None
        key = self._waiting.popleft()
        self._holders.add(key)
        return key


class News:
    """When to tell: an end at once, unless something was told just now; that something runs, a moment later.

    So a lone task waits for nobody, and of a short one among many the agent hears once.
    """

    def __init__(self) -> None:
        self.at = math.inf
        self._told_at = -math.inf

    def note(self, now: float, *, urgent: bool) -> None:
        self.at = min(self.at, self._told_at + TOGETHER if urgent else now + TOGETHER)

    def due(self, now: float) -> bool:
        """Whether to tell now; it counts as told then."""
        if now < self.at:
            return False
        self.at, self._told_at = math.inf, now
        return True
