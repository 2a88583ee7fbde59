"""Whose turn it is: as many work at once as there are slots, and whoever was taken ahead waits in line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final
from uuid import UUID

# Of how long it takes to get work ready: once to ask for it, once to have its start committed, and some air.
_HORIZON: Final = 2.5
_LONGEST_HORIZON: Final = 0.5
_MOST_AHEAD: Final = 64
# How much the last one counts among all.
_SHARE: Final = 0.1
# Of how long ago the pace still tells, in seconds.
_WHILE: Final = 0.5


class Pace:
    """How many pieces of work end per second, of late, and how long it takes to get another one ready.

    So many are taken ahead as will have their turn by the time others are ready: short work is, long is not.
    """

    def __init__(self) -> None:
        self._per_second = 0.0
        self._at = 0.0
        self._lead = 0.0

    def note_ready(self, seconds: float) -> None:
        """Work that could begin at once was ready so long after it came."""
        self._lead += (seconds - self._lead) * (_SHARE if self._lead else 1.0)

    def note_end(self, now: float) -> None:
        self._per_second = self.per_second(now) + 1 / _WHILE
        self._at = now

    def per_second(self, now: float) -> float:
        return self._per_second * math.exp(-max(0.0, now - self._at) / _WHILE)

    def ahead(self, now: float) -> int:
        """How many to take beyond the slots."""
        return min(_MOST_AHEAD, int(self.per_second(now) * min(_LONGEST_HORIZON, _HORIZON * self._lead)))


class Slots:
    """A slot is had from the moment there is one, also by work that is not due yet."""

    def __init__(self, count: int) -> None:
        self.pace = Pace()
        self._count = count
        self._holders: set[UUID] = set()
        # In the order they came.
        self._line: dict[UUID, Callable[[], None]] = {}

    @property
    def count(self) -> int:
        return self._count

    def resize(self, count: int) -> None:
        self._count = count
        self._call_next()

    def enter(self, token: UUID, on_turn: Callable[[], None]) -> None:
        """Have a slot, or stand in line and be called when there is one."""
        self._line[token] = on_turn
        self._call_next()

    def occupy(self, token: UUID) -> None:
        """Of what works already, whether there is a slot for it or not."""
        self._holders.add(token)

    def holds(self, token: UUID) -> bool:
        return token in self._holders

    def leave(self, token: UUID) -> None:
        self._line.pop(token, None)
        self._holders.discard(token)
        self._call_next()

    def _call_next(self) -> None:
        while self._line and len(self._holders) < self._count:
            token = next(iter(self._line))
            call = self._line.pop(token)
            self._holders.add(token)
            call()
