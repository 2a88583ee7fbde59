"""Which attempts have a slot. As many run as there are slots; attempts claimed ahead wait in a queue.

Commands that are due may wait at the keeper, which starts the next one before the agent learns that a slot is
free. They leave this queue early, but only while no other work holds a slot: the keeper only
counts its commands.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable
from enum import Enum, auto
from typing import Final

# A multiple of the time that work needs to get ready: one poll, one start, and a margin.
_HORIZON: Final = 2.5
# Work that was claimed ahead should get a slot in this time, long before it is released.
_LONGEST_WAIT: Final = 0.2
_MOST_AHEAD: Final = 256
# No process ends sooner.
_SHORTEST: Final = 0.001
# The weight of the last sample in an average.
_SHARE: Final = 0.1
# The time constant of the pace, in seconds.
_TIME_CONSTANT: Final = 0.5
# After so long without an end the pace starts anew; it is computed over at least `_SHORTEST_SPAN` seconds.
_PAUSE: Final = 0.25
_SHORTEST_SPAN: Final = 0.1


class Pace:
    """How long recent work took, how much of it ended per second, and how long new work needs to get ready.

    The agent claims as much ahead as its slots can finish until new work is ready: some if work is short,
    none if it is long. The number of ends per second is an upper bound only: it would stay low without work
    that was claimed ahead.
    """

    def __init__(self) -> None:
        # Recent ends, with a weight that decreases; since when they count, and the time of the last one.
        self._recent = 0.0
        self._since = 0.0
        self._at = 0.0
        self._lead = 0.0
        self._duration: float | None = None

    def note_ready(self, seconds: float) -> None:
        """Work that was due got ready `seconds` after it came."""
        self._lead += (seconds - self._lead) * (_SHARE if self._lead else 1.0)

    def note_end(self, now: float, seconds: float) -> None:
        """Work has ended that took `seconds`."""
        if now - self._at > _PAUSE:
            self._recent, self._since = 0.0, now - seconds
        self._recent = self._left(now) + 1
        self._at = now
        before = seconds if self._duration is None else self._duration
        self._duration = before + (seconds - before) * _SHARE

    def per_second(self, now: float) -> float:
        """Ends per second since the current burst began: the idle time before it does not count."""
        span = max(_SHORTEST_SPAN, now - self._since)
        return self._left(now) / (_TIME_CONSTANT * (1 - math.exp(-span / _TIME_CONSTANT)))

    def _left(self, now: float) -> float:
        return self._recent * math.exp(-max(0.0, now - self._at) / _TIME_CONSTANT)

    def ahead(self, now: float, slots: int) -> int:
        """How many assignments to claim beyond the slots."""
        if self._duration is None:
            return 0
        done_meanwhile = slots * _HORIZON * self._lead / max(self._duration, _SHORTEST)
        done_in_time = self.per_second(now) * (self._lead + _LONGEST_WAIT)
        return min(_MOST_AHEAD, int(done_meanwhile), int(done_in_time))


class Waits(Enum):
    """Where work waits for its slot."""

    HERE = auto()
    # Here, though the keeper runs it: it is due later, and keeps a slot from the moment it gets one.
    HERE_FOR_KEEPER = auto()
    AT_KEEPER = auto()


class Slots:
    """Work holds a slot from the moment it gets one, also before it is due. Holders are hashable."""

    def __init__(self, count: int) -> None:
        self.pace = Pace()
        self._count = count
        self._holders: set[Hashable] = set()
        # The holders whose work the keeper does not run.
        self._own: set[Hashable] = set()
        # In the order in which they came: what to call when they get a slot, and where they wait.
        self._queue: dict[Hashable, tuple[Callable[[], None], Waits]] = {}

    @property
    def count(self) -> int:
        return self._count

    def ahead(self, now: float) -> int:
        """How many assignments to claim beyond the slots."""
        return self.pace.ahead(now, self._count)

    def resize(self, count: int) -> None:
        self._count = count
        self._assign()

    def enter(self, who: Hashable, on_slot: Callable[[], None], waits: Waits = Waits.HERE) -> None:
        """Get a slot, or wait for one; `on_slot` is called when `who` gets it."""
        self._queue[who] = (on_slot, waits)
        self._assign()

    def occupy(self, who: Hashable) -> None:
        """Hold a slot for work that runs already, even if none is free."""
        self._holders.add(who)

    def holds(self, who: Hashable) -> bool:
        return who in self._holders

    async def wait(
        self, who: Hashable, changed: asyncio.Event, patience: float, gives_up: Callable[[], bool]
    ) -> bool:
        """Whether `who` gets a slot within `patience` seconds. `changed` is set on every change."""
        if who in self._holders:
            return True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        alarm = loop.call_at(deadline, changed.set)
        while not (who in self._holders or gives_up() or loop.time() >= deadline):
            changed.clear()
            await changed.wait()
        alarm.cancel()
        return who in self._holders

    def leave(self, who: Hashable) -> None:
        self._queue.pop(who, None)
        self._holders.discard(who)
        self._own.discard(who)
        self._assign()

    def _assign(self) -> None:
        while self._queue:
            who = next(iter(self._queue))
            call, waits = self._queue[who]
            if len(self._holders) >= self._count and (self._own or waits is not Waits.AT_KEEPER):
                return
            del self._queue[who]
            self._holders.add(who)
            if waits is Waits.HERE:
                self._own.add(who)
            call()
