"""Background loops.

The work of a loop is `run_once() -> count`; this module decides when to call it:

    count > 0   more work may exist: run again immediately
    count = 0   idle: run again after `every`, jittered, or on `wake()`; up to a quarter earlier if
                another alarm rings then, so that idle loops wake together
    exception   logged and counted: run again after a backoff that doubles up to `backoff_max`

A wake-up during a run causes one more run directly after it, no matter how many wake-ups arrive. A wake-up
does not shorten a backoff: a failing loop with many wake-ups would overload the failing dependency.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from hetuflow_core.runtime.timers import Alarm, Timers

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.loop")

_SHORTEST_SILENCE: Final = 30.0
_LONGEST_RUN: Final = 300.0
_CANCEL_GRACE: Final = 1.0
# Less than half, so that a loop with a period of one second does not follow a loop of half a second.
_LEEWAY: Final = 0.25


@dataclass(frozen=True, slots=True)
class LoopStats:
    """Statistics of a loop for health checks and metrics; times are `Clock.monotonic()` seconds."""

    name: str
    runs: int
    items: int
    failures: int
    consecutive_failures: int
    last_duration: float
    last_success_monotonic: float | None
    running_since: float | None


class Loop:
    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[int]],
        *,
        timers: Timers,
        rng: random.Random,
        every: float,
        jitter: float = 0.1,
        backoff_max: float = 30.0,
        stop_timeout: float = 10.0,
        stuck_after: float | None = None,
    ) -> None:
        """`every` may be changed later; the change takes effect at the next pause.

        `stuck_after` is how long one run may take before the loop counts as dead.
        """
        if every <= 0 or not 0 <= jitter < 1 or backoff_max <= 0:
            raise ValueError(f"Loop {name} needs every > 0, 0 <= jitter < 1 and backoff_max > 0.")
        self.name = name
        self.runs = 0
        self.items = 0
        self.failures = 0
        self.consecutive_failures = 0
        self.last_duration = 0.0
        self.last_success_monotonic: float | None = None
        self.running_since: float | None = None
        self._run_once = run_once
        self._timers = timers
        self._clock = timers.clock
        self._rng = rng
        self.every = every
        self._jitter = jitter
        self._backoff_max = backoff_max
        self._stop_timeout = stop_timeout
        self._silence_limit = max(10 * every, _SHORTEST_SILENCE, 2 * backoff_max)
        self._stuck_after = min(self._silence_limit, _LONGEST_RUN) if stuck_after is None else stuck_after
        self._last_end = 0.0
        self._task: asyncio.Task[None] | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._nudge = asyncio.Event()
        self._woken = False
        self._due_at: float | None = None
        self._leeway = 0.0
        # Stays set when a wake-up ends a pause early, which may happen many times per second.
        self._alarm: Alarm | None = None
        self._stopping = False

    async def start(self) -> None:
        """Start the loop; the first run begins immediately."""
        if self._task is not None and not self._task.done():
            raise RuntimeError(f"Loop {self.name} is running already.")
        self._stopping = False
        self._last_end = self._clock.monotonic()
        self._event_loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._serve(), name=f"loop {self.name}")
        self._task.add_done_callback(self._note_end)

    async def stop(self) -> None:
        """Let the current run finish within `stop_timeout`, then cancel it."""
        task, self._stopping = self._task, True
        self._nudge.set()
        if task is None:
            return
        try:
            await asyncio.wait({task}, timeout=self._stop_timeout)
        finally:
            if not task.done():
                log.warning("cancelled a run of the loop", loop=self.name, waited=self._stop_timeout)
                task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_GRACE)
        if not task.done():
            log.error("loop ignores its cancellation and is abandoned", loop=self.name)

    def wake(self) -> None:
        """Run now, or once more after the current run. Call this in the event loop's thread."""
        self._woken = True
        self._nudge.set()

    def wake_threadsafe(self) -> None:
        """Call `wake()` from any thread."""
        if self._event_loop is not None:
            with suppress(RuntimeError):  # the event loop is closed
                self._event_loop.call_soon_threadsafe(self.wake)

    def alive(self, now: float | None = None) -> bool:
        """Whether the loop still runs regularly at `now` (`Clock.monotonic()`, which excludes suspend).

        A failed run counts as a run: restarting the process would not repair a failing dependency.
        """
        if self._task is None or self._task.done():
            return False
        now = self._clock.monotonic() if now is None else now
        if self.running_since is not None:
            return now - self.running_since <= self._stuck_after
        return now - self._last_end <= self._silence_limit

    def stats(self) -> LoopStats:
        return LoopStats(
            name=self.name,
            runs=self.runs,
            items=self.items,
            failures=self.failures,
            consecutive_failures=self.consecutive_failures,
            last_duration=self.last_duration,
            last_success_monotonic=self.last_success_monotonic,
            running_since=self.running_since,
        )

    async def _serve(self) -> None:
        structlog.contextvars.bind_contextvars(loop=self.name)
        try:
            while not self._stopping:
                await self._round()
        finally:
            self._forget_alarm()

    async def _round(self) -> None:
        self._woken = False
        count = await self._attempt()
        if count is None:
            delay = backoff_delay(self.consecutive_failures, min(self.every, 1.0), self._backoff_max)
            await self._pause(self._jittered(delay), wakeable=False)
        elif count > 0:
            await asyncio.sleep(0)
        else:
            await self._pause(self._jittered(self.every), wakeable=True)

    async def _attempt(self) -> int | None:
        """Run once; return the count, or None if the run failed."""
        started = self.running_since = self._clock.monotonic()
        try:
            count = await self._run_once()
        except asyncio.CancelledError as error:
            # Unless this loop is being cancelled, code inside the run was cancelled: an ordinary failure.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._note_failure(error)
            return None
        except Exception as error:  # noqa: BLE001  a loop survives any exception of its run
            self._note_failure(error)
            return None
        finally:
            self.runs += 1
            self.running_since = None
            self._last_end = self._clock.monotonic()
            self.last_duration = self._last_end - started
        self.items += count
        self.consecutive_failures = 0
        self.last_success_monotonic = self._last_end
        return count

    async def _pause(self, delay: float, *, wakeable: bool) -> None:
        due_at = self._due_at = self._clock.boottime() + delay
        # A backoff has no leeway.
        self._leeway = delay * _LEEWAY if wakeable else 0.0
        if self._alarm is not None and self._alarm.deadline > due_at:
            self._forget_alarm()
        if self._alarm is None:
            self._alarm = self._timers.set(due_at, self._on_alarm, leeway=self._leeway)
        try:
            while self._pauses(wakeable=wakeable):
                self._nudge.clear()
                await self._nudge.wait()
        finally:
            self._due_at = None

    def _pauses(self, *, wakeable: bool) -> bool:
        return self._due_at is not None and not self._stopping and not (wakeable and self._woken)

    def _on_alarm(self) -> None:
        """Handle the alarm of this pause, or of an earlier pause that a wake-up ended."""
        rang_for = self._alarm.deadline if self._alarm is not None else 0.0
        self._alarm = None
        if self._due_at is None:
            return
        if self._due_at > rang_for and self._due_at - self._leeway > self._clock.boottime():
            self._alarm = self._timers.set(self._due_at, self._on_alarm, leeway=self._leeway)
            return
        self._due_at = None
        self._nudge.set()

    def _forget_alarm(self) -> None:
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.cancel()

    def _jittered(self, delay: float) -> float:
        return delay * (1 + self._rng.uniform(-self._jitter, self._jitter))

    def _note_failure(self, error: BaseException) -> None:
        self.failures += 1
        self.consecutive_failures += 1
        log.error(
            "run of the loop failed, retrying",
            loop=self.name,
            consecutive_failures=self.consecutive_failures,
            exc_info=error,
        )

    def _note_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None or not self._stopping:
            log.critical("loop ended unexpectedly", loop=self.name, exc_info=error)


def backoff_delay(consecutive_failures: int, first: float, longest: float) -> float:
    """Return `first`, doubled with every further failure, at most `longest`."""
    doublings = min(max(consecutive_failures - 1, 0), 62)  # a float would overflow
    return min(longest, first * 2.0**doublings)
