"""Whose turn it is: as many work at once as there are slots, and whoever was taken ahead waits in line.

Commands that are due may wait at the keeper, which has the next one under way before we hear that a slot is
free. They have their turn here ahead of time, but only while nothing else works in our slots: of that the
keeper knows nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable
from enum import Enum, auto
from typing import Final

# Of how long it takes to get work ready: once to ask for it, once to have its start committed, and some air.
_HORIZON: Final = 2.5
# Once it is ready, what was taken ahead should have its turn long before it is given back.
_LONGEST_WAIT: Final = 0.2
_MOST_AHEAD: Final = 256
# No process is over sooner.
_SHORTEST: Final = 0.001
# How much the last one counts among all.
_SHARE: Final = 0.1
# Of how long ago the pace still tells, in seconds.
_WHILE: Final = 0.5
# After so long without an end what came before tells nothing any more, and no less is enough to tell by.
_PAUSE: Final = 0.25
_LEAST_TOLD: Final = 0.1


class Pace:
    """How long work takes, of late, how much of it ends per second, and how long it takes to get more ready.

    So many are taken ahead as the slots could be done with by the time others are ready: short work is, long
    is not. What really ends per second is a bound and not the measure: with nothing ahead it would stay low,
    and so it would with no more ahead than ends while others are made ready.
    """

    def __init__(self) -> None:
        # Ends of late, each counting for less with time; since when, and as of when.
        self._recent = 0.0
        self._since = 0.0
        self._at = 0.0
        self._lead = 0.0
        self._duration: float | None = None

    def note_ready(self, seconds: float) -> None:
        """Work that could begin at once was ready so long after it came."""
        self._lead += (seconds - self._lead) * (_SHARE if self._lead else 1.0)

    def note_end(self, now: float, seconds: float) -> None:
        """Some work has ended that took so long."""
        if now - self._at > _PAUSE:
            self._recent, self._since = 0.0, now - seconds
        self._recent = self._left(now) + 1
        self._at = now
        before = seconds if self._duration is None else self._duration
        self._duration = before + (seconds - before) * _SHARE

    def per_second(self, now: float) -> float:
        """Of the time since work began to end: a burst is not slow because there was nothing before it."""
        told = max(_LEAST_TOLD, now - self._since)
        return self._left(now) / (_WHILE * (1 - math.exp(-told / _WHILE)))

    def _left(self, now: float) -> float:
        return self._recent * math.exp(-max(0.0, now - self._at) / _WHILE)

    def ahead(self, now: float, slots: int) -> int:
        """How many to take beyond the slots."""
        if self._duration is None:
            return 0
        done_meanwhile = slots * _HORIZON * self._lead / max(self._duration, _SHORTEST)
        done_in_time = self.per_second(now) * (self._lead + _LONGEST_WAIT)
        return min(_MOST_AHEAD, int(done_meanwhile), int(done_in_time))


class Waits(Enum):
    """Where work may wait for its slot."""

    HERE = auto()
    # The keeper runs it, but not before an instant: it has a slot from the moment there is one.
    HERE_FOR_KEEPER = auto()
    AT_KEEPER = auto()


class Slots:
    """A slot is had from the moment there is one, also by work that is not due yet.

    Who has one is known by identity or by whatever names it, as long as that is hashable.
    """

    def __init__(self, count: int) -> None:
        self.pace = Pace()
        self._count = count
        self._holders: set[Hashable] = set()
        # Of them, those whose work is not the keeper's.
        self._own: set[Hashable] = set()
        # In the order they came: how to call them, and whether they may wait at the keeper.
        self._line: dict[Hashable, tuple[Callable[[], None], Waits]] = {}

    @property
    def count(self) -> int:
        return self._count

    def ahead(self, now: float) -> int:
        """How many to take beyond them."""
        return self.pace.ahead(now, self._count)

    def resize(self, count: int) -> None:
        self._count = count
        self._call_next()

    def enter(self, who: Hashable, on_turn: Callable[[], None], waits: Waits = Waits.HERE) -> None:
        """Have a slot, or stand in line and be called when there is one."""
        self._line[who] = (on_turn, waits)
        self._call_next()

    def occupy(self, who: Hashable) -> None:
        """Of what works already, whether there is a slot for it or not."""
        self._holders.add(who)

    def holds(self, who: Hashable) -> bool:
        return who in self._holders

    async def wait(
        self, who: Hashable, changed: asyncio.Event, patience: float, gives_up: Callable[[], bool]
    ) -> bool:
        """Whether `who` got a slot within `patience` seconds. `changed` is set when one of these may hold."""
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
        self._line.pop(who, None)
        self._holders.discard(who)
        self._own.discard(who)
        self._call_next()

    def _call_next(self) -> None:
        while self._line:
            who = next(iter(self._line))
            call, waits = self._line[who]
            if len(self._holders) >= self._count and (self._own or waits is not Waits.AT_KEEPER):
                return
            del self._line[who]
            self._holders.add(who)
            if waits is Waits.HERE:
                self._own.add(who)
            call()
