"""The alarms that wake loops and start work at its exact time.

APScheduler waits on the wall clock, which steps. So it is only ever asked to wake us, with one job at a time:
deadlines are kept on `Clock.boottime()`, a wake that comes too early is asked for again, and a guard on the
event loop's own timer looks once a second for alarms that a step backwards (or a night's sleep of the
machine) has left behind. Arming costs more than most runs of a loop, so only the earliest alarm is armed.

An alarm with leeway rings with another one that rings shortly before it: loops that pause for about as long
end up waking together, once for all of them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

import structlog
from apscheduler.events import EVENT_SCHEDULER_SHUTDOWN
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from hetuflow_core.runtime.clock import Clock

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.timers")

# Both clocks are read one after the other and NTP slews them apart a little: less than this is on time.
_ON_TIME: Final = 0.001
# A wall clock this far from where it was when the next wake was asked for has stepped rather than slewed.
_STEPPED: Final = 0.05
# So many forgotten alarms may stand among the others before they are swept out.
_MOST_FORGOTTEN: Final = 64


class Alarm:
    """One callback at one boottime; it rings once, unless it is cancelled first."""

    __slots__ = ("_timers", "callback", "deadline", "leeway", "waiting")

    def __init__(self, timers: Timers, deadline: float, callback: Callable[[], None], leeway: float) -> None:
        self.deadline = deadline
        self.leeway = leeway
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
        # Those that need not wait for their own deadline.
        self._lenient: set[Alarm] = set()
        # How many of the alarms above are silent.
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
        self._lenient.clear()
        self._forgotten = 0
        self._wake = None
        scheduler.remove_all_jobs()
        # It stops in a callback of the event loop, not in the call.
        stopped = asyncio.Event()
        scheduler.add_listener(lambda _event: stopped.set(), EVENT_SCHEDULER_SHUTDOWN)
        scheduler.shutdown(wait=False)
        await stopped.wait()

    def set(self, deadline: float, callback: Callable[[], None], *, leeway: float = 0.0) -> Alarm:
        """Call `callback` in the event loop when `clock.boottime()` has reached `deadline`.

        Or up to `leeway` seconds before that, should another alarm ring then.
        """
        if self._scheduler is None:
            raise RuntimeError("Start the timers before setting an alarm.")
        alarm = Alarm(self, deadline, callback, leeway)
        if leeway > 0:
            self._lenient.add(alarm)
        heapq.heappush(self._alarms, (deadline, next(self._numbers), alarm))
        if self._wake is None or deadline < self._wake.deadline:
            self._arm()
        return alarm

    def forget(self, alarm: Alarm) -> None:
        """Let an alarm be silent. It stays where it is: a wake for nothing is cheaper than arming again."""
        if not alarm.waiting:
            return
        self._silence(alarm)
        self._forgotten += 1
        if self._forgotten > max(_MOST_FORGOTTEN, len(self._alarms) // 2):
            self._alarms = [entry for entry in self._alarms if entry[2].waiting]
            heapq.heapify(self._alarms)
            self._forgotten = 0

    def check(self) -> None:
        """Ring every alarm whose time has come, and see that the next one is waited for."""
        boottime = self.clock.boottime()
        rang = False
        while self._alarms and self._alarms[0][0] - boottime <= _ON_TIME:
            alarm = heapq.heappop(self._alarms)[2]
            if alarm.waiting:
                self._ring(alarm)
                rang = True
            else:
                self._forgotten -= 1
        if rang:
            self._ring_along(boottime)
        if self._wake is None or self._missed(self._wake, boottime):
            self._arm()

    def _ring_along(self, boottime: float) -> None:
        """Ring those that may as well ring now that another one did."""
        for alarm in [one for one in self._lenient if one.deadline - one.leeway <= boottime]:
            if alarm.waiting:
                self._ring(alarm)
                self._forgotten += 1

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
        while self._alarms and not self._alarms[0][2].waiting:
            heapq.heappop(self._alarms)
            self._forgotten -= 1
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

    def _silence(self, alarm: Alarm) -> None:
        alarm.waiting = False
        self._lenient.discard(alarm)

    def _ring(self, alarm: Alarm) -> None:
        self._silence(alarm)
        try:
            alarm.callback()
        except Exception:
            log.exception("An alarm's callback failed.")
