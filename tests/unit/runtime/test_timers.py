"""The timers, on real time and on clocks that step, stand still or jump over a night's sleep."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from hetuflow_core.runtime.clock import ManualClock, SystemClock
from hetuflow_core.runtime.loop import Alarm, Loop, Timers

HOUR = 3600.0


class SteppedClock(SystemClock):
    """Real time, on a wall clock that can be set, of a machine that can sleep."""

    def __init__(self) -> None:
        self.step = timedelta(0)
        self.slept = 0.0

    def now(self) -> datetime:
        return super().now() + self.step

    def boottime(self) -> float:
        return super().boottime() + self.slept


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
async def timers(clock: SteppedClock) -> AsyncIterator[Timers]:
    timers = Timers(clock, guard_every=0.05)
    await timers.start()
    yield timers
    await timers.stop()


@pytest.fixture
def fired(monkeypatch: pytest.MonkeyPatch) -> list[Alarm]:
    """What the event loop has called."""
    run: list[Alarm] = []
    original = Timers._on_time

    def spy(self: Timers, alarm: Alarm) -> None:
        run.append(alarm)
        original(self, alarm)

    monkeypatch.setattr(Timers, "_on_time", spy)
    return run


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


async def test_an_alarm_rings_once_at_its_time(
    clock: SteppedClock, timers: Timers, fired: list[Alarm]
) -> None:
    bell = Bell()
    deadline = clock.boottime() + 0.02
    alarm = timers.set(deadline, bell)
    await bell.wait()
    assert clock.boottime() >= deadline - 0.001
    assert fired == [alarm]
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


async def test_a_clock_that_stands_still_is_asked_again_without_spinning(fired: list[Alarm]) -> None:
    timers = Timers(ManualClock(datetime(2001, 1, 1, tzinfo=UTC)), guard_every=HOUR)
    await timers.start()
    bell = Bell()
    timers.set(timers.clock.boottime() + 0.05, bell)
    began = SystemClock().monotonic()
    # Real time passes: it is armed for a twentieth of a second again and again.
    await asyncio.sleep(0.12)
    assert bell.times == 0
    assert 1 <= len(fired) <= 1 + (SystemClock().monotonic() - began) / 0.05
    await timers.stop()


async def test_after_a_sleep_of_the_machine_an_alarm_is_on_time_again(
    clock: SteppedClock, timers: Timers
) -> None:
    bell, deadline = Bell(), clock.boottime() + HOUR
    alarm = timers.set(deadline, bell)
    clock.slept += HOUR - 0.3
    timers.check()
    assert bell.times == 0
    assert alarm.handle is not None
    assert alarm.handle.when() - asyncio.get_running_loop().time() < 0.5
    await bell.wait()
    assert clock.boottime() >= deadline - 0.001


async def test_an_alarm_that_came_due_while_the_machine_slept_rings_at_the_next_look() -> None:
    clock = ManualClock(datetime(2101, 1, 1, tzinfo=UTC))
    timers = Timers(clock, guard_every=HOUR)
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


async def test_the_guard_survives_a_callback_that_fails(
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
