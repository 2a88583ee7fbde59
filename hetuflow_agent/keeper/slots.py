"""Which commands have a slot, and when the agent is sent their states."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

# States are sent together: one message costs the agent as much as several tasks do.
SEND_EVERY: Final = 0.01
# While commands wait for a slot, they do not wait for the agent, so it may learn of ends later.
SEND_EVERY_IN_BURST: Final = 0.025


class SlotQueue:
    """As many commands hold a slot as there are slots; the others wait in the order in which they came."""

    def __init__(self) -> None:
        # Unlimited until an agent sets the number.
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
    def has_waiting(self) -> bool:
        """Whether a command can begin as soon as a slot is free."""
        return bool(self._waiting)

    def waits(self, key: str) -> bool:
        return key not in self._holders and key in self._waiting

    def next(self) -> str | None:
        """The next command that gets a slot; it holds the slot until it leaves."""
        if not self._waiting or len(self._holders) >= self._slots:
            return None
        key = self._waiting.popleft()
        self._holders.add(key)
        return key


class PendingStates:
    """Tasks whose state has changed since the agent was sent it.

    An end is sent at once, unless a state was sent just now; a start is sent after a delay. So an end without
    others is never delayed, and the agent gets a single message about a short task.
    """

    def __init__(self, queue: SlotQueue) -> None:
        self._queue = queue
        self._sent_at = -math.inf
        self._urgent: dict[str, None] = {}
        # When to send that a task runs, the earliest first.
        self._begun: dict[str, float] = {}

    @property
    def due_at(self) -> float:
        """When a state must be sent."""
        begun = next(iter(self._begun.values()), math.inf)
        if not self._urgent:
            return begun
        return min(begun, self._sent_at + (SEND_EVERY_IN_BURST if self._queue.has_waiting else SEND_EVERY))

    def note(self, key: str) -> None:
        self._begun.pop(key, None)
        self._urgent[key] = None

    def note_begun(self, key: str, now: float) -> None:
        if key not in self._urgent:
            self._begun[key] = now + SEND_EVERY

    def drop(self, key: str) -> None:
        self._begun.pop(key, None)
        self._urgent.pop(key, None)

    def take(self, now: float) -> list[str]:
        """The keys of the tasks whose state must be sent now; the caller sends them."""
        if now < self.due_at:
            return []
        keys = [*self._urgent, *(key for key, at in self._begun.items() if at <= now)]
        for key in keys:
            self.drop(key)
        self._sent_at = now
        return keys
