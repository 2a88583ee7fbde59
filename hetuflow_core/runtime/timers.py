"""Alarms that wake loops and start work at its exact time: a heap of alarms over one job of APScheduler.

APScheduler compares wall-clock times, and the wall clock steps. It reads the time as `datetime.now(zone)`, so
this module passes a zone whose time is always `Clock.boottime()`: a step of the wall clock has no effect.

Setting the time of a job costs more than most runs of a loop, so only the earliest alarm is set. The event
loop's timers stop while the machine is suspended. Therefore no wake-up is set further ahead than
`longest_wait`; after a suspend, alarms ring at most that late.

An alarm with leeway rings together with an alarm that rings shortly before it. Loops that pause for about as
long end up waking together, once for all of them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from itertools import count
from typing import Any, Final

import structlog
from apscheduler.events import EVENT_SCHEDULER_SHUTDOWN
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from hetuflow_core.runtime.clock import Clock

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.timers")

# Event loops may call back up to this early.
_ON_TIME: Final = 0.001
# This many cancelled alarms may remain in the heap before they are removed.
_MOST_CANCELLED: Final = 64


class _BoottimeZone(tzinfo):
    """A time zone whose present time is boottime, counted from year 1."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def at(self, boottime: float) -> datetime:
        return datetime.min.replace(tzinfo=self) + timedelta(seconds=boottime)

    def fromutc(self, _: datetime) -> datetime:
        """Return the present time: `datetime.now(zone)` is this method's only caller."""
        return self.at(self._clock.boottime())

    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, _: datetime | None) -> str:
        return "boottime"


class _Never(BaseTrigger):  # type: ignore[misc]  # APScheduler ships no types
    """The trigger of a job whose next time is always set explicitly."""

    def __init__(self, zone: tzinfo) -> None:
        self._never = datetime.max.replace(tzinfo=zone)

    def get_next_fire_time(self, _previous: datetime | None, _now: datetime) -> datetime:
        return self._never


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


class Timers:
    """The one APScheduler of a process, shared by its loops: started before them and stopped after them."""

    name = "timers"

    def __init__(self, clock: Clock, *, longest_wait: float = 1.0) -> None:
        self.clock = clock
        self._longest_wait = longest_wait
        self._zone = _BoottimeZone(clock)
        # By deadline; the number keeps alarms of the same deadline in the order they were set.
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._numbers = count()
        # Alarms that may ring before their deadline.
        self._lenient: set[Alarm] = set()
        # How many of the alarms above have rung or were cancelled.
        self._silent = 0
        # The boottime for which APScheduler's job is set.
        self._armed: float | None = None
        self._scheduler: Any = None
        self._job: Any = None

    async def start(self) -> None:
        if self._scheduler is not None:
            raise RuntimeError("The timers are running already.")
        self._scheduler = AsyncIOScheduler(
            timezone=self._zone,
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )
        self._scheduler.start()
        # One job for the whole time, because creating a job costs more than setting its next time.
        self._job = self._scheduler.add_job(self._on_job, trigger=_Never(self._zone), next_run_time=None)

    async def stop(self) -> None:
        if self._scheduler is None:
            return
        scheduler, self._scheduler = self._scheduler, None
        self._alarms.clear()
        self._lenient.clear()
        self._silent = 0
        self._armed = None
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
        if self._armed is None or deadline < self._armed:
            self._arm()
        return alarm

    def forget(self, alarm: Alarm) -> None:
        """Cancel an alarm. It stays in the heap: one needless wake-up is cheaper than arming again."""
        if not alarm.waiting:
            return
        self._silence(alarm)
        self._silent += 1
        if self._silent > max(_MOST_CANCELLED, len(self._alarms) // 2):
            self._alarms = [entry for entry in self._alarms if entry[2].waiting]
            heapq.heapify(self._alarms)
            self._silent = 0

    def check(self) -> None:
        """Ring every alarm that is due, and arm the next one."""
        boottime = self.clock.boottime()
        rang = False
        while self._alarms and self._alarms[0][0] - boottime <= _ON_TIME:
            alarm = heapq.heappop(self._alarms)[2]
            if alarm.waiting:
                self._ring(alarm)
                rang = True
            else:
                self._silent -= 1
        if rang:
            self._ring_along(boottime)
        if self._armed is None or self._armed <= self.clock.boottime():
            self._arm()

    def _ring_along(self, boottime: float) -> None:
        """Ring alarms whose leeway has begun, now that another alarm has rung."""
        for alarm in [alarm for alarm in self._lenient if alarm.deadline - alarm.leeway <= boottime]:
            if alarm.waiting:
                self._ring(alarm)
                self._silent += 1

    def _arm(self) -> None:
        self._armed = None
        while self._alarms and not self._alarms[0][2].waiting:
            heapq.heappop(self._alarms)
            self._silent -= 1
        if not self._alarms or self._scheduler is None:
            return
        self._armed = min(self._alarms[0][0], self.clock.boottime() + self._longest_wait)
        self._job.modify(next_run_time=self._zone.at(self._armed))

    async def _on_job(self) -> None:
        """APScheduler calls this. It is a coroutine, because APScheduler runs functions in a thread."""
        # Not in this call: APScheduler skips a run of the job that is due while the job is still running.
        asyncio.get_running_loop().call_soon(self._on_wake)

    def _on_wake(self) -> None:
        self._armed = None
        self.check()

    def _silence(self, alarm: Alarm) -> None:
        alarm.waiting = False
        self._lenient.discard(alarm)

    def _ring(self, alarm: Alarm) -> None:
        self._silence(alarm)
        try:
            alarm.callback()
        except Exception:
            log.exception("alarm callback failed")
