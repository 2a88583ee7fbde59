from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from hetuflow_core.runtime.clock import ManualClock
from hetuflow_core.runtime.loop import Loop, backoff_delay
from hetuflow_core.runtime.timers import Timers

Log = Callable[[], list[dict[str, Any]]]


class Work:
    """A `run_once` that follows a script (then finds nothing) and tells of every run."""

    def __init__(self, *script: int | BaseException) -> None:
        self.script = list(script)
        self.runs = 0
        self._ran = asyncio.Semaphore(0)

    async def run_once(self) -> int:
        self.runs += 1
        self._ran.release()
        result = self.script.pop(0) if self.script else 0
        if isinstance(result, BaseException):
            raise result
        return result

    async def ran(self, times: int = 1) -> None:
        async with asyncio.timeout(10):
            for _ in range(times):
                await self._ran.acquire()
        await settle()


class Gated:
    """A `run_once` that stays in its run until it is let out."""

    def __init__(self) -> None:
        self.entered = asyncio.Semaphore(0)
        self.gate = asyncio.Semaphore(0)
        self.runs = 0
        self.cancelled = False

    async def run_once(self) -> int:
        self.runs += 1
        self.entered.release()
        try:
            await self.gate.acquire()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return 0


async def settle() -> None:
    """Let everything happen that is ready to happen."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 3, 1, tzinfo=UTC))


@pytest.fixture
async def timers(clock: ManualClock) -> AsyncIterator[Timers]:
    timers = Timers(clock)
    await timers.start()
    yield timers
    await timers.stop()


@pytest.fixture
async def make(timers: Timers) -> AsyncIterator[Callable[..., Loop]]:
    made: list[Loop] = []

    def build(run_once: Any, **options: Any) -> Loop:
        settings: dict[str, Any] = {"every": 5.0, "jitter": 0.0, "rng": random.Random(1)}
        made.append(Loop("sweeper", run_once, timers=timers, **settings | options))
        return made[-1]

    yield build
    for loop in made:
        await loop.stop()


async def pass_time(timers: Timers, clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    timers.check()
    await settle()


async def test_the_first_run_is_at_once_and_the_next_after_every(
    timers: Timers, clock: ManualClock, make: Callable[..., Loop]
) -> None:
    work = Work()
    loop = make(work.run_once)
    await loop.start()
    await work.ran()
    await pass_time(timers, clock, 4.9)
    assert work.runs == 1
    await pass_time(timers, clock, 0.1)
    assert work.runs == 2


async def test_a_count_means_again_at_once(make: Callable[..., Loop]) -> None:
    work = Work(3, 1, 7)
    loop = make(work.run_once)
    await loop.start()
    await work.ran(4)
    assert work.runs == 4
    assert (loop.runs, loop.items) == (4, 11)


async def test_a_loop_that_always_finds_work_leaves_room_for_others_and_for_stop(
    make: Callable[..., Loop],
) -> None:
    async def run_once() -> int:
        return 1

    loop = make(run_once)
    await loop.start()
    await settle()
    assert loop.runs > 5
    await loop.stop()
    runs = loop.runs
    await settle()
    assert loop.runs == runs


async def test_a_wake_runs_it_now(make: Callable[..., Loop]) -> None:
    work = Work()
    loop = make(work.run_once)
    await loop.start()
    await work.ran()
    loop.wake()
    await work.ran()
    assert work.runs == 2


async def test_wakes_coalesce(make: Callable[..., Loop]) -> None:
    work = Work()
    loop = make(work.run_once)
    await loop.start()
    await work.ran()
    for _ in range(10):
        loop.wake()
    await work.ran()
    assert work.runs == 2


async def test_any_number_of_wakes_during_a_run_is_one_more_run(make: Callable[..., Loop]) -> None:
    work = Gated()
    loop = make(work.run_once)
    await loop.start()
    await work.entered.acquire()
    for _ in range(5):
        loop.wake()
    work.gate.release()
    await work.entered.acquire()
    work.gate.release()
    await settle()
    assert work.runs == 2


async def test_a_wake_from_another_thread(make: Callable[..., Loop]) -> None:
    work = Work()
    loop = make(work.run_once)
    loop.wake_threadsafe()  # before it has started: no harm
    await loop.start()
    await work.ran()
    thread = threading.Thread(target=loop.wake_threadsafe)
    thread.start()
    await work.ran()
    thread.join()
    assert work.runs == 2


async def test_a_failure_is_logged_counted_and_backed_off_and_success_resets_it(
    timers: Timers, clock: ManualClock, make: Callable[..., Loop], logged: Log
) -> None:
    work = Work(
        ValueError("no such row"), ValueError("again"), ValueError("and again"), 0, ValueError("anew")
    )
    loop = make(work.run_once, backoff_max=3.0)
    await loop.start()
    await work.ran()
    for delay, failures in ((1.0, 1), (2.0, 2), (3.0, 3)):  # doubles, then the cap
        assert (loop.failures, loop.consecutive_failures) == (failures, failures)
        assert loop.last_success_monotonic is None
        await pass_time(timers, clock, delay - 0.01)
        assert work.runs == failures
        await pass_time(timers, clock, 0.01)
        assert work.runs == failures + 1
    assert (loop.failures, loop.consecutive_failures) == (3, 0)
    assert loop.last_success_monotonic == clock.monotonic()
    await pass_time(timers, clock, 5)
    await pass_time(timers, clock, 1)  # the backoff begins at its first step again
    assert (work.runs, loop.failures, loop.consecutive_failures) == (6, 4, 0)
    errors = [line for line in logged() if line["level"] == "error"]
    assert [line["consecutive_failures"] for line in errors] == [1, 2, 3, 1]
    assert errors[0]["loop"] == "sweeper"
    assert "ValueError: no such row" in errors[0]["exception"]
    assert "in run_once" in errors[0]["exception"]


async def test_a_wake_does_not_cut_a_backoff_short(
    timers: Timers, clock: ManualClock, make: Callable[..., Loop]
) -> None:
    work = Work(OSError("database away"))
    loop = make(work.run_once)
    await loop.start()
    await work.ran()
    loop.wake()
    await settle()
    assert work.runs == 1
    await pass_time(timers, clock, 1)
    assert work.runs == 2


async def test_a_cancellation_inside_the_run_is_a_failure_like_any_other(
    timers: Timers, clock: ManualClock, make: Callable[..., Loop]
) -> None:
    work = Work(asyncio.CancelledError())
    loop = make(work.run_once)
    await loop.start()
    await work.ran()
    assert loop.failures == 1
    await pass_time(timers, clock, 1)
    assert work.runs == 2
    assert loop.alive()


async def test_a_loop_killed_from_outside_is_not_silent(make: Callable[..., Loop], logged: Log) -> None:
    work = Gated()
    loop = make(work.run_once)
    await loop.start()
    await work.entered.acquire()
    assert loop.alive()
    assert loop._task is not None
    loop._task.cancel()
    await settle()
    assert not loop.alive()
    assert [(line["level"], line["loop"]) for line in logged()] == [("critical", "sweeper")]


async def test_stop_lets_a_run_finish(make: Callable[..., Loop]) -> None:
    work = Gated()
    loop = make(work.run_once)
    await loop.start()
    await work.entered.acquire()
    stopping = asyncio.create_task(loop.stop())
    await settle()
    assert not stopping.done()
    work.gate.release()
    await stopping
    assert (work.runs, work.cancelled, loop.runs) == (1, False, 1)
    assert not loop.alive()


async def test_stop_cancels_a_run_that_takes_too_long(make: Callable[..., Loop], logged: Log) -> None:
    work = Gated()
    loop = make(work.run_once, stop_timeout=0.01)
    await loop.start()
    await work.entered.acquire()
    await loop.stop()
    assert work.cancelled
    assert [line["level"] for line in logged()] == ["warning"]


async def test_a_stop_that_is_itself_cancelled_takes_the_run_with_it(make: Callable[..., Loop]) -> None:
    work = Gated()
    loop = make(work.run_once)
    await loop.start()
    await work.entered.acquire()
    stopping = asyncio.create_task(loop.stop())
    await settle()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await settle()
    assert work.cancelled


async def test_stop_while_waiting_and_start_again(make: Callable[..., Loop]) -> None:
    work = Work()
    loop = make(work.run_once)
    await loop.start()
    await work.ran()
    with pytest.raises(RuntimeError, match="running already"):
        await loop.start()
    await loop.stop()
    assert work.runs == 1
    await loop.start()
    await work.ran()
    assert loop.alive()


async def test_stop_before_start_is_fine(make: Callable[..., Loop]) -> None:
    loop = make(Work().run_once)
    assert not loop.alive()
    await loop.stop()


async def test_not_alive_when_stuck_in_a_run(clock: ManualClock, make: Callable[..., Loop]) -> None:
    work = Gated()
    loop = make(work.run_once, every=1.0, backoff_max=5.0)
    await loop.start()
    await work.entered.acquire()
    assert loop.running_since == clock.monotonic()
    clock.advance(30)
    assert loop.alive()
    clock.sleep_machine(3600)  # asleep is not stuck
    assert loop.alive()
    clock.advance(0.1)
    assert not loop.alive()
    work.gate.release()
    await settle()
    assert loop.alive()
    assert loop.stats().running_since is None
    assert loop.last_duration == pytest.approx(30.1)


async def test_not_alive_when_no_run_comes(clock: ManualClock, make: Callable[..., Loop]) -> None:
    work = Work()
    loop = make(work.run_once, every=4.0, backoff_max=5.0)
    await loop.start()
    await work.ran()
    clock.advance(40)  # and nobody rings
    assert loop.alive()
    assert loop.alive(clock.monotonic())
    assert not loop.alive(clock.monotonic() + 0.1)


async def test_long_work_sets_its_own_limit(clock: ManualClock, make: Callable[..., Loop]) -> None:
    work = Gated()
    loop = make(work.run_once, every=1.0, stuck_after=1000.0)
    await loop.start()
    await work.entered.acquire()
    clock.advance(1000)
    assert loop.alive()
    clock.advance(1)
    assert not loop.alive()
    work.gate.release()


async def test_jitter_spreads_the_waits_within_its_bounds(
    timers: Timers, clock: ManualClock, make: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    set_alarm = timers.set

    def spy(deadline: float, callback: Callable[[], None], *, leeway: float) -> Any:
        waits.append(deadline - clock.boottime())
        return set_alarm(deadline, callback, leeway=leeway)

    monkeypatch.setattr(timers, "set", spy)
    work = Work()
    loop = make(work.run_once, every=10.0, jitter=0.2, rng=random.Random(7))
    await loop.start()
    await work.ran()
    for _ in range(100):
        await pass_time(timers, clock, 12)
    assert len(waits) == 101
    assert 8.0 <= min(waits) < 8.5
    assert 11.5 < max(waits) <= 12.0


async def test_stats_tell_it_all(clock: ManualClock, make: Callable[..., Loop]) -> None:
    work = Work(2, 0)
    loop = make(work.run_once)
    await loop.start()
    await work.ran(2)
    stats = loop.stats()
    assert (stats.name, stats.runs, stats.items, stats.failures, stats.consecutive_failures) == (
        "sweeper",
        2,
        2,
        0,
        0,
    )
    assert (stats.last_success_monotonic, stats.running_since) == (clock.monotonic(), None)


@pytest.mark.parametrize("options", [{"every": 0}, {"every": -1}, {"jitter": 1.0}, {"backoff_max": 0}])
async def test_settings_that_make_no_sense_are_refused(
    make: Callable[..., Loop], options: dict[str, float]
) -> None:
    with pytest.raises(ValueError, match="Loop sweeper needs"):
        make(Work().run_once, **options)


@pytest.mark.parametrize(
    ("failures", "delay"), [(0, 0.5), (1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 30.0), (10**6, 30.0)]
)
def test_the_backoff_doubles_up_to_its_cap(failures: int, delay: float) -> None:
    assert backoff_delay(failures, 0.5, 30.0) == delay


async def test_a_pause_that_was_cut_short_leaves_its_alarm_for_the_next(
    clock: ManualClock, timers: Timers, make: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arming costs more than most runs; the time between two runs is the same as with an alarm for each."""
    armed: list[float] = []
    arm = timers.set
    monkeypatch.setattr(
        timers, "set", lambda at, ring, *, leeway: armed.append(at) or arm(at, ring, leeway=leeway)
    )
    work = Work()
    loop = make(work.run_once, every=5.0)
    await loop.start()
    await work.ran()
    for _ in range(3):
        clock.advance(1.0)
        loop.wake()
        await work.ran()
    assert len(armed) == 1
    clock.advance(2.0)  # the alarm of the first pause
    timers.check()
    await settle()
    assert work.runs == 4, "five seconds since the last run, not since the first"
    clock.advance(3.0)
    timers.check()
    await work.ran()
    assert len(armed) == 3


async def test_an_idle_loop_rings_along_and_one_that_backs_off_waits_it_out(
    clock: ManualClock, timers: Timers, make: Callable[..., Loop]
) -> None:
    idle, failing = Work(), Work(OSError("database away"))
    for work in (idle, failing):
        await make(work.run_once, every=1.0).start()
        await work.ran()
    timers.set(clock.boottime() + 0.7, lambda: None)
    await pass_time(timers, clock, 0.7)
    assert (idle.runs, failing.runs) == (1, 1), "a pause is three quarters of what it may be at least"
    timers.set(clock.boottime() + 0.1, lambda: None)
    await pass_time(timers, clock, 0.1)
    assert (idle.runs, failing.runs) == (2, 1)
    await pass_time(timers, clock, 0.2)
    assert (idle.runs, failing.runs) == (2, 2)


async def test_another_pace_counts_from_the_next_pause_on(
    clock: ManualClock, timers: Timers, make: Callable[..., Loop]
) -> None:
    work = Work()
    loop = make(work.run_once, every=1.0)
    await loop.start()
    await work.ran()
    loop.every = 3.0
    await pass_time(timers, clock, 1.0)
    assert work.runs == 2
    await pass_time(timers, clock, 2.9)
    assert work.runs == 2
    await pass_time(timers, clock, 0.1)
    assert work.runs == 3
