"""Background loops: one shell for all of them, and the timers that wake them.

A loop is `run_once() -> count` and nothing else; the shell decides when to call it:

    count > 0   there may be more: again at once
    count = 0   nothing to do: again after `every`, jittered, or as soon as `wake()` is called
    exception   logged and counted: again after a backoff that doubles up to `backoff_max`

A wake during a run means one more run directly after it; any number of wakes is one wake. A wake is a hint
and does not cut a backoff short: a failing loop that is woken often would hammer what it waits for.

APScheduler waits on the wall clock, which steps. So it is only ever asked to wake us, with one job at a time:
deadlines are kept on `Clock.boottime()`, a wake that comes too early is asked for again, and a guard on the
event loop's own timer looks once a second for alarms that a step backwards (or a night's sleep of the
machine) has left behind. Arming costs more than most runs of a loop, so only the earliest alarm is armed.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

import structlog
from apscheduler.events import EVENT_SCHEDULER_SHUTDOWN
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from hetuflow_core.runtime.clock import Clock

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.loop")

# Both clocks are read one after the other and NTP slews them apart a little: less than this is on time.
_ON_TIME: Final = 0.001
# A wall clock this far from where it was when the next wake was asked for has stepped rather than slewed.
_STEPPED: Final = 0.05
# So many forgotten alarms may stand among the others before they are swept out.
_MOST_FORGOTTEN: Final = 64

_SHORTEST_SILENCE: Final = 30.0
_LONGEST_RUN: Final = 300.0
_CANCEL_GRACE: Final = 1.0


class Alarm:
    """One callback at one boottime; it rings once, unless it is cancelled first."""

    __slots__ = ("_timers", "callback", "deadline", "waiting")

    def __init__(self, timers: Timers, deadline: float, callback: Callable[[], None]) -> None:
        self.deadline = deadline
        self.callback = callback
        self.waiting = True
        self._timers = timers

    def cancel(self) -> None:
        self._timers.forget(self)


@dataclass(frozen=True, slots=True)
class _Wake:
    """What APScheduler was asked for: the boottime we want, and what the wall clock will say then."""

    deadline: float
    wall: datetime


class Timers:
    """The one APScheduler of a process, shared by its loops: started before them and stopped after them."""

    name = "timers"

    def __init__(self, clock: Clock, *, guard_every: float = 1.0) -> None:
        self.clock = clock
        self._guard_every = guard_every
        # By deadline; the number keeps alarms of the same deadline in the order they were set.
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._numbers = count()
        self._forgotten = 0
        self._wake: _Wake | None = None
        self._woken_early = False
        self._scheduler: Any = None
        self._job: Any = None
        self._guard: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        if self._scheduler is not None:
            raise RuntimeError("The timers are running already.")
        # A named zone keeps APScheduler from asking the host for its own, which warns where TZ is odd.
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        self._scheduler.start()
        # One job for good, whose next time is set anew: making one costs more than most runs of a loop.
        self._job = self._scheduler.add_job(self._on_job, trigger="interval", days=1, next_run_time=None)
        self._keep_watch()

    async def stop(self) -> None:
        if self._scheduler is None:
            return
        scheduler, self._scheduler = self._scheduler, None
        if self._guard is not None:
            self._guard.cancel()
        self._alarms.clear()
        self._forgotten = 0
        self._wake = None
        scheduler.remove_all_jobs()
        # It stops in a callback of the event loop, not in the call.
        stopped = asyncio.Event()
        scheduler.add_listener(lambda _event: stopped.set(), EVENT_SCHEDULER_SHUTDOWN)
        scheduler.shutdown(wait=False)
        await stopped.wait()

    def set(self, deadline: float, callback: Callable[[], None]) -> Alarm:
        """Call `callback` in the event loop when `clock.boottime()` has reached `deadline`."""
        if self._scheduler is None:
            raise RuntimeError("Start the timers before setting an alarm.")
        alarm = Alarm(self, deadline, callback)
        heapq.heappush(self._alarms, (deadline, next(self._numbers), alarm))
        if self._wake is None or deadline < self._wake.deadline:
            self._arm()
        return alarm

    def forget(self, alarm: Alarm) -> None:
        """Let an alarm be silent. It stays where it is: a wake for nothing is cheaper than arming again."""
        if not alarm.waiting:
            return
        alarm.waiting = False
        self._forgotten += 1
        if self._forgotten > max(_MOST_FORGOTTEN, len(self._alarms) // 2):
            self._alarms = [entry for entry in self._alarms if entry[2].waiting]
            heapq.heapify(self._alarms)
            self._forgotten = 0

    def check(self) -> None:
        """Ring every alarm whose time has come, and see that the next one is waited for."""
        boottime = self.clock.boottime()
        while self._alarms and self._alarms[0][0] - boottime <= _ON_TIME:
            alarm = heapq.heappop(self._alarms)[2]
            if alarm.waiting:
                self._ring(alarm)
            else:
                self._forgotten -= 1
        if self._wake is None or self._missed(self._wake, boottime):
            self._arm()

    def _missed(self, wake: _Wake, boottime: float) -> bool:
        """Whether a wake is behind us, or will come at another time than was meant."""
        remaining = wake.deadline - boottime
        if remaining <= _ON_TIME:
            return True
        return abs((wake.wall - self.clock.now()).total_seconds() - remaining) > _STEPPED

    def _keep_watch(self) -> None:
        # Armed again first: whatever happens in the check, the guard goes on.
        self._guard = asyncio.get_running_loop().call_later(self._guard_every, self._keep_watch)
        self._woken_early = False
        self.check()

    def _arm(self) -> None:
        self._wake = None
        if not self._alarms or self._scheduler is None:
            return
        deadline = self._alarms[0][0]
        remaining = max(0.0, deadline - self.clock.boottime())
        self._wake = _Wake(deadline, self.clock.now() + timedelta(seconds=remaining))
        self._job.modify(next_run_time=self._wake.wall)

    async def _on_job(self) -> None:
        """What APScheduler calls. A coroutine, because it would run a plain function in a thread."""
        # Not here: it would find the job still running when the next wake is due at once, and skip that.
        asyncio.get_running_loop().call_soon(self._on_wake)

    def _on_wake(self) -> None:
        wake = self._wake
        if wake is None:
            return
        early = wake.deadline - self.clock.boottime() > _ON_TIME
        if early:
            self._wake = None
            if self._woken_early:
                # Twice within one round of the guard: the clocks disagree, and arming again would spin.
                return
        self._woken_early = early
        self.check()

    def _ring(self, alarm: Alarm) -> None:
        alarm.waiting = False
        try:
            alarm.callback()
        except Exception:
            log.exception("An alarm's callback failed.")


@dataclass(frozen=True, slots=True)
class LoopStats:
    """What health and metrics show of a loop; times are `Clock.monotonic()` seconds."""

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
        """`stuck_after`: how long one run may take before the loop counts as dead; long work sets its own."""
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
        self._every = every
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
        # Left armed over pauses that a wake has cut short, which may be many a second.
        self._alarm: Alarm | None = None
        self._stopping = False

    async def start(self) -> None:
        """Begin; the first run is at once."""
        if self._task is not None and not self._task.done():
            raise RuntimeError(f"Loop {self.name} is running already.")
        self._stopping = False
        self._last_end = self._clock.monotonic()
        self._event_loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._serve(), name=f"loop {self.name}")
        self._task.add_done_callback(self._note_end)

    async def stop(self) -> None:
        """Let a run that is under way finish within `stop_timeout`, then cancel it."""
        task, self._stopping = self._task, True
        self._nudge.set()
        if task is None:
            return
        try:
            await asyncio.wait({task}, timeout=self._stop_timeout)
        finally:
            if not task.done():
                log.warning("A loop's run was cancelled.", loop=self.name, waited=self._stop_timeout)
                task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_GRACE)
        if not task.done():
            log.error("A loop ignores being cancelled and is left behind.", loop=self.name)

    def wake(self) -> None:
        """Run now, or once more after the run that is under way. Call it in the event loop's thread."""
        self._woken = True
        self._nudge.set()

    def wake_threadsafe(self) -> None:
        """As `wake()`, from any thread."""
        if self._event_loop is not None:
            with suppress(RuntimeError):  # the event loop is closed: there is nothing left to wake
                self._event_loop.call_soon_threadsafe(self.wake)

    def alive(self, now: float | None = None) -> bool:
        """Whether it still does its rounds at `now` (`Clock.monotonic()`: a machine that slept is not stuck).

        A run that fails is a round done: restarting the process would not mend what it waits for.
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
            delay = backoff_delay(self.consecutive_failures, min(self._every, 1.0), self._backoff_max)
            await self._pause(self._jittered(delay), wakeable=False)
        elif count > 0:
            await asyncio.sleep(0)
        else:
            await self._pause(self._jittered(self._every), wakeable=True)

    async def _attempt(self) -> int | None:
        """One supervised run: its count, or None when it failed."""
        started = self.running_since = self._clock.monotonic()
        try:
            count = await self._run_once()
        except asyncio.CancelledError as error:
            # Unless it was us, something inside the run was cancelled: a failure like any other.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._note_failure(error)
            return None
        except Exception as error:  # noqa: BLE001  a loop outlives whatever its run raises
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
        if self._alarm is not None and self._alarm.deadline > due_at:
            self._forget_alarm()
        if self._alarm is None:
            self._alarm = self._timers.set(due_at, self._on_alarm)
        try:
            while self._pauses(wakeable=wakeable):
                self._nudge.clear()
                await self._nudge.wait()
        finally:
            self._due_at = None

    def _pauses(self, *, wakeable: bool) -> bool:
        return self._due_at is not None and not self._stopping and not (wakeable and self._woken)

    def _on_alarm(self) -> None:
        """Of this pause, or of an earlier one that was cut short."""
        rang_for = self._alarm.deadline if self._alarm is not None else 0.0
        self._alarm = None
        if self._due_at is None:
            return
        if self._due_at > rang_for:
            self._alarm = self._timers.set(self._due_at, self._on_alarm)
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
            "A loop's run failed and will be tried again.",
            loop=self.name,
            consecutive_failures=self.consecutive_failures,
            exc_info=error,
        )

    def _note_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None or not self._stopping:
            log.critical("A loop has died.", loop=self.name, exc_info=error)


def backoff_delay(consecutive_failures: int, first: float, longest: float) -> float:
    """`first` doubled with every further failure, at most `longest`."""
    doublings = min(max(consecutive_failures - 1, 0), 62)  # beyond that a float would overflow in the end
    return min(longest, first * 2.0**doublings)
