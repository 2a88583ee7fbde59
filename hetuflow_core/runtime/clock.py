"""The only module that reads clocks; other code receives a `Clock` or a time as an argument.

The three readings:

    now()        the wall clock, for display and log lines; it may step, so no decision depends on it
    boottime()   seconds including suspend, for deadlines and leases
    monotonic()  seconds without suspend, for measuring durations
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

# Only Linux has a clock that includes suspend; elsewhere a resumed machine renews its leases late.
_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def now(self) -> datetime: ...

    def boottime(self) -> float: ...

    def monotonic(self) -> float: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def boottime(self) -> float:
        return time.clock_gettime(_BOOTTIME)

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that only changes when a test advances it."""

    def __init__(self, now: datetime, *, seconds: float = 1_000.0) -> None:
        if now.tzinfo is None:
            raise ValueError("A clock needs an aware datetime: pass one with tzinfo=UTC.")
        self._now = now.astimezone(UTC)
        self._boottime = seconds
        self._monotonic = seconds

    def now(self) -> datetime:
        return self._now

    def boottime(self) -> float:
        return self._boottime

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Advance all clocks."""
        self.sleep_machine(seconds)
        self._monotonic += seconds

    def sleep_machine(self, seconds: float) -> None:
        """Advance the clocks as during a suspend: the monotonic clock stops."""
        if seconds < 0:
            raise ValueError("Time cannot run backwards: use step_wall() to set the wall clock back.")
        self._now += timedelta(seconds=seconds)
        self._boottime += seconds

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock forwards or backwards, as an administrator or NTP does."""
        self._now += timedelta(seconds=seconds)
