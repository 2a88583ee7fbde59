"""The timers on a real APScheduler, whose wall clock the tests step."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Any, Self

import apscheduler.executors.base
import apscheduler.schedulers.base
import pytest
from apscheduler.job import Job

from hetuflow_core.runtime.clock import ManualClock, SystemClock
from hetuflow_core.runtime.loop import Loop
from hetuflow_core.runtime.timers import Alarm, Timers

HOUR = 3600.0


class SteppedClock(SystemClock):
    """Real time, on a wall clock that can be set."""

    def __init__(self) -> None:
        self.step = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.step


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SteppedClock:
    clock = SteppedClock()

    class WallClock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(clock.now().timestamp(), tz)

    monkeypatch.setattr(apscheduler.schedulers.base, "datetime", WallClock)
    monkeypatch.setattr(apscheduler.executors.base, "datetime", WallClock)
    return clock


@pytest.fixture
async def timers(clock: SteppedClock) -> AsyncIterator[Timers]:
    timers = Timers(clock, longest_wait=0.05)
    await timers.start()
    yield timers
    await timers.stop()


@pytest.fixture
def wakes(monkeypatch: pytest.MonkeyPatch) -> list[Timers]:
    """Each wake-up by APScheduler."""
    woken: list[Timers] = []
    original = Timers._on_wake

    def spy(self: Timers) -> None:
        woken.append(self)
        original(self)

    monkeypatch.setattr(Timers, "_on_wake", spy)
    return woken


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The times that APScheduler's job was set to."""
    asked: list[datetime] = []
    original = Job.modify

    def spy(self: Any, *, next_run_time: datetime) -> Any:
        asked.append(next_run_time)
        return original(self, next_run_time=next_run_time)

    monkeypatch.setattr(Job, "modify", spy)
    return asked


class Bell:
    def __init__(self) -> None:
        self.rung = asyncio.Event()
        self.times = 0

    def __call__(self) -> None:
        self.times += 1
        self.rung.set()

    async def wait(self) -> None:
        async with asyncio.timeout(10):
            await self.rung.wait()


async def test_an_alarm_rings_once_at_its_time_through_apscheduler(
    clock: SteppedClock, timers: Timers, wakes: list[Timers]
) -> None:
    bell = Bell()
    deadline = clock.boottime() + 0.02
    alarm = timers.set(deadline, bell)
    await bell.wait()
    assert clock.boottime() >= deadline - 0.001
    assert wakes == [timers]
    alarm.cancel()
    timers.check()
    assert bell.times == 1


async def test_a_cancelled_alarm_stays_silent(clock: SteppedClock, timers: Timers) -> None:
    silent, later = Bell(), Bell()
    timers.set(clock.boottime() + 0.01, silent).cancel()
    timers.set(clock.boottime() + 0.05, later)
    await later.wait()
    assert silent.times == 0


@pytest.mark.parametrize("step", [-HOUR, HOUR], ids=["backwards", "forwards"])
async def test_a_loop_keeps_its_pace_when_the_wall_clock_steps(
    clock: SteppedClock, timers: Timers, step: float
) -> None:
    starts: list[float] = []
    ran = asyncio.Semaphore(0)

    async def run_once() -> int:
        starts.append(clock.monotonic())
        ran.release()
        return 0

    loop = Loop("ticker", run_once, timers=timers, rng=random.Random(1), every=0.2, jitter=0.0)
    await loop.start()
    async with asyncio.timeout(20):
        for _ in range(2):
            await ran.acquire()
        await asyncio.sleep(0.01)  # less than it waits: now it is armed for the old time
        assert timers._alarms
        clock.step += timedelta(seconds=step)
        for _ in range(3):
            await ran.acquire()
    await loop.stop()
    gaps = [after - before for before, after in pairwise(starts)]
    assert min(gaps) > 0.19  # no spinning
    assert max(gaps) < 5  # no stalling; generous, because the machine may be busy


@pytest.mark.parametrize("step", [-HOUR, HOUR], ids=["backwards", "forwards"])
async def test_a_step_of_the_wall_clock_neither_rings_an_alarm_nor_moves_it(
    clock: SteppedClock, wakes: list[Timers], step: float
) -> None:
    timers, near, far = Timers(clock, longest_wait=HOUR), Bell(), Bell()
    await timers.start()
    timers.set(clock.boottime() + HOUR / 2, far)
    clock.step += timedelta(seconds=step)
    timers._scheduler.wakeup()  # compares the times of its jobs
    timers.set(clock.boottime() + 0.02, near)
    await near.wait()
    assert (far.times, len(wakes)) == (0, 1)
    await timers.stop()


async def test_a_clock_that_stands_still_rings_nothing_and_does_not_spin(wakes: list[Timers]) -> None:
    timers = Timers(ManualClock(datetime(2001, 1, 1, tzinfo=UTC)))
    await timers.start()
    bell = Bell()
    timers.set(timers.clock.boottime() + 0.01, bell)
    timers._scheduler.wakeup()
    for _ in range(500):
        await asyncio.sleep(0)
    assert (bell.times, wakes) == (0, [])
    await timers.stop()


async def test_a_wake_up_is_never_set_further_ahead_than_the_longest_wait() -> None:
    """The machine may be suspended meanwhile, and the event loop's timers with it."""
    clock = ManualClock(datetime(2101, 1, 1, tzinfo=UTC))
    timers = Timers(clock, longest_wait=2.0)
    await timers.start()
    timers.set(clock.boottime() + 60, Bell())
    assert timers._armed == clock.boottime() + 2
    clock.advance(59)
    timers.check()
    assert timers._armed == clock.boottime() + 1
    await timers.stop()


async def test_only_the_earliest_alarm_is_armed(
    clock: SteppedClock, timers: Timers, armed: list[datetime]
) -> None:
    bells = [Bell() for _ in range(100)]
    soon = clock.boottime() + 0.2
    for late, bell in enumerate(bells):
        timers.set(soon + late * 1e-5, bell)
    first = len(armed)
    assert first == 1
    await bells[-1].wait()
    assert [bell.times for bell in bells] == [1] * 100
    assert len(armed) <= first + 20  # those that are due together ring together


async def test_an_alarm_that_is_earlier_than_all_others_is_armed_at_once(
    clock: SteppedClock, timers: Timers, armed: list[datetime]
) -> None:
    later, sooner = Bell(), Bell()
    timers.set(clock.boottime() + 60, later)
    timers.set(clock.boottime() + 0.01, sooner)
    assert len(armed) == 2
    await sooner.wait()
    assert later.times == 0


async def test_forgotten_alarms_are_swept_out_and_the_others_stay(
    clock: SteppedClock, timers: Timers
) -> None:
    kept = Bell()
    timers.set(clock.boottime() + 0.05, kept)
    for _ in range(10_000):
        timers.set(clock.boottime() + 600, Bell()).cancel()
    assert len(timers._alarms) < 200
    await kept.wait()


async def test_an_alarm_that_came_due_while_the_machine_slept_rings_at_the_next_look() -> None:
    clock = ManualClock(datetime(2101, 1, 1, tzinfo=UTC))
    timers = Timers(clock, longest_wait=HOUR)
    await timers.start()
    bell = Bell()
    timers.set(clock.boottime() + 600, bell)
    clock.sleep_machine(599)
    timers.check()
    assert bell.times == 0
    clock.sleep_machine(1)
    timers.check()
    assert bell.times == 1
    await timers.stop()


async def test_a_callback_that_fails_stops_no_other_alarm(
    clock: SteppedClock, timers: Timers, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    def fail() -> None:
        raise LookupError("broken bell")

    bell = Bell()
    timers.set(clock.boottime() - 1, fail)
    timers.check()
    assert "LookupError: broken bell" in logged()[-1]["exception"]
    timers.set(clock.boottime() + 0.01, bell)
    await bell.wait()


async def test_timers_stop_cleanly_forget_their_alarms_and_start_again(clock: SteppedClock) -> None:
    timers, bell = Timers(clock), Bell()
    with pytest.raises(RuntimeError, match="Start the timers"):
        timers.set(clock.boottime(), bell)
    await timers.stop()
    await timers.start()
    with pytest.raises(RuntimeError, match="running already"):
        await timers.start()
    timers.set(clock.boottime() + 60, bell)
    await timers.stop()
    timers.check()
    await timers.start()
    timers.set(clock.boottime(), bell)
    await bell.wait()
    await timers.stop()
    assert bell.times == 1


async def test_an_odd_local_time_zone_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Nowhere/Atlantis")
    timers, bell = Timers(SystemClock()), Bell()
    await timers.start()
    timers.set(timers.clock.boottime() + 0.01, bell)
    await bell.wait()
    await timers.stop()


class Slumber:
    """Timers on a clock that stands still: nothing rings but what is looked at."""

    def __init__(self) -> None:
        self.clock = ManualClock(datetime(2101, 1, 1, tzinfo=UTC))
        self.timers = Timers(self.clock, longest_wait=HOUR)

    def set(self, seconds: float, *, leeway: float = 0.0) -> tuple[Bell, Alarm]:
        bell = Bell()
        return bell, self.timers.set(self.clock.boottime() + seconds, bell, leeway=leeway)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timers.check()


@pytest.fixture
async def slumber() -> AsyncIterator[Slumber]:
    slumber = Slumber()
    await slumber.timers.start()
    yield slumber
    await slumber.timers.stop()


async def test_an_alarm_with_leeway_rings_along_with_another_and_never_before_its_leeway(
    slumber: Slumber,
) -> None:
    exact, _ = slumber.set(8.0)
    near, _ = slumber.set(10.0, leeway=2.5)
    far, _ = slumber.set(10.0, leeway=1.5)
    strict, _ = slumber.set(8.5)
    slumber.pass_time(7.9)  # within its leeway, but nobody else rings
    assert near.times == 0
    slumber.pass_time(0.1)
    assert [bell.times for bell in (exact, near, far, strict)] == [1, 1, 0, 0]
    slumber.pass_time(0.5)
    assert [bell.times for bell in (exact, near, far, strict)] == [1, 1, 1, 1]
    slumber.pass_time(10.0)
    assert [bell.times for bell in (exact, near, far, strict)] == [1, 1, 1, 1]


async def test_an_alarm_with_leeway_rings_by_itself_at_its_deadline(slumber: Slumber) -> None:
    bell, _ = slumber.set(10.0, leeway=9.0)
    slumber.pass_time(9.9)
    assert bell.times == 0
    slumber.pass_time(0.1)
    assert bell.times == 1


async def test_an_alarm_with_leeway_that_was_cancelled_does_not_ring_along(slumber: Slumber) -> None:
    exact, _ = slumber.set(8.0)
    bell, alarm = slumber.set(10.0, leeway=5.0)
    alarm.cancel()
    slumber.pass_time(8.0)
    slumber.pass_time(8.0)
    assert (exact.times, bell.times) == (1, 0)


async def test_an_alarm_that_rang_along_is_not_armed_again(slumber: Slumber) -> None:
    slumber.set(8.0)
    slumber.set(10.0, leeway=5.0)
    slumber.set(60.0)
    slumber.pass_time(8.0)
    assert slumber.timers._armed == slumber.clock.boottime() + 52.0


async def test_loops_that_pause_for_as_long_wake_together(clock: SteppedClock, wakes: list[Timers]) -> None:
    """Twenty loops that begin at different times, and one that looks twice as often."""
    timers = Timers(clock, longest_wait=HOUR)
    await timers.start()
    runs = Counter[int]()
    rounds = asyncio.Semaphore(0)

    def loop_of(number: int, every: float) -> Loop:
        async def run_once() -> int:
            runs[number] += 1
            if number == 0:
                rounds.release()
            return 0

        return Loop(f"loop {number}", run_once, timers=timers, rng=random.Random(number), every=every)

    loops = [loop_of(0, 0.2), *(loop_of(number, 0.4) for number in range(1, 21))]
    for loop in loops:
        await loop.start()
        apart = Bell()
        timers.set(clock.boottime() + 0.005, apart)
        await apart.wait()
    async with asyncio.timeout(60):
        for _ in range(10):
            await rounds.acquire()
        wakes.clear()
        before = runs.copy()
        for _ in range(20):
            await rounds.acquire()
    ran = runs - before
    for loop in loops:
        await loop.stop()
    await timers.stop()
    assert all(ran[number] for number in range(21))
    # Each by itself would take as many wakes as there were runs.
    assert len(wakes) < ran.total() / 4
