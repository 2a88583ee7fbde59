"""Who may run, of those that take a slot; and what it is time to tell the agent of."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

# While much happens the agent hears of it together: what one message costs it is as much as several tasks do.
TOGETHER: Final = 0.01
# While others wait in line for a slot, it is not the agent that they wait for.
IN_A_BURST: Final = 0.025


class SlotQueue:
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

    @property
    def crowded(self) -> bool:
        """Whether the next one is there already when a slot becomes free."""
        return bool(self._waiting)

    def waits(self, key: str) -> bool:
        return key not in self._holders and key in self._waiting

    def next(self) -> str | None:
        """Whose turn it is now; it holds a slot from here on, until it leaves."""
        if not self._waiting or len(self._holders) >= self._slots:
            return None
        key = self._waiting.popleft()
        self._holders.add(key)
        return key


class PendingNews:
    """An end is told at once, unless something was told just now; that something runs, after a moment.

    So a lone task waits for nobody, and of a short one the agent hears once.
    """

    def __init__(self, line: SlotQueue) -> None:
        self._line = line
        self._told_at = -math.inf
        self._urgent: dict[str, None] = {}
        # When to tell that it runs, the earliest first.
        self._begun: dict[str, float] = {}

    @property
    def at(self) -> float:
        """When there is something to tell."""
        begun = next(iter(self._begun.values()), math.inf)
        if not self._urgent:
            return begun
        return min(begun, self._told_at + (IN_A_BURST if self._line.crowded else TOGETHER))

    def note(self, key: str) -> None:
        self._begun.pop(key, None)
        self._urgent[key] = None

    def note_begun(self, key: str, now: float) -> None:
        if key not in self._urgent:
            self._begun[key] = now + TOGETHER

    def drop(self, key: str) -> None:
        self._begun.pop(key, None)
        self._urgent.pop(key, None)

    def take(self, now: float) -> list[str]:
        """What to tell now; it counts as told then."""
        if now < self.at:
            return []
        keys = [*self._urgent, *(key for key, at in self._begun.items() if at <= now)]
        for key in keys:
            self.drop(key)
        self._told_at = now
        return keys
