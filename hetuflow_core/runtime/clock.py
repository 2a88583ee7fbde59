"""The only place where clocks are read; everything else is handed a `Clock` or a time.

Three readings with three meanings:

    now()        the wall clock: for people and for log lines; it may step, so it decides nothing
    boottime()   seconds that also count while the machine sleeps: for deadlines and leases
    monotonic()  seconds this machine was awake: for measuring how long our own work took
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

# Only Linux has a clock that counts sleep; elsewhere a machine that slept renews its leases late.
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
    """A clock that stands still until a test moves it."""

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
        """Let time pass."""
        self.sleep_machine(seconds)
        self._monotonic += seconds

    def sleep_machine(self, seconds: float) -> None:
        """Let time pass while the machine is suspended: the monotonic clock stands still."""
        if seconds < 0:
            raise ValueError("Time does not run backwards: use step_wall() to set the wall clock back.")
        self._now += timedelta(seconds=seconds)
        self._boottime += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forwards or backwards, as an administrator or NTP does."""
        self._now += timedelta(seconds=seconds)
