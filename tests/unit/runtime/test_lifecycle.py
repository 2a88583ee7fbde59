from __future__ import annotations

import asyncio
import random
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import uvloop

from hetuflow_core.errors import Conflict, PortTaken
from hetuflow_core.runtime.clock import ManualClock, SystemClock
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_core.runtime.lifecycle import Application, Part, StopSwitch, run_application
from hetuflow_core.runtime.loop import Loop
from hetuflow_core.runtime.timers import Timers

Log = Callable[[], list[dict[str, Any]]]


class Recorded:
    """A part that writes its life into a shared diary."""

    def __init__(self, name: str, diary: list[str]) -> None:
        self.name = name
        self.diary = diary

    async def start(self) -> None:
        self.diary.append(f"+{self.name}")

    async def stop(self) -> None:
        self.diary.append(f"-{self.name}")


class SlowStart(Recorded):
    def __init__(self, name: str, diary: list[str]) -> None:
        super().__init__(name, diary)
        self.starting = asyncio.Event()

    async def start(self) -> None:
        self.starting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.diary.append(f"!{self.name}")


class SlowStop(Recorded):
    """Its stop never ends; told to go, it goes or not."""

    def __init__(self, name: str, diary: list[str], *, obedient: bool = True) -> None:
        super().__init__(name, diary)
        self.stopping = asyncio.Event()
        self.release = asyncio.Event()
        self.obedient = obedient

    async def stop(self) -> None:
        self.stopping.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.diary.append(f"!{self.name}")
            if self.obedient:
                raise
            await self.release.wait()


class Failing(Recorded):
    def __init__(
        self,
        name: str,
        diary: list[str],
        *,
        start: BaseException | None = None,
        stop: Exception | None = None,
    ) -> None:
        super().__init__(name, diary)
        self.start_error = start
        self.stop_error = stop

    async def start(self) -> None:
        await super().start()
        if self.start_error is not None:
            raise self.start_error

    async def stop(self) -> None:
        await super().stop()
        if self.stop_error is not None:
            raise self.stop_error


@pytest.fixture
def diary() -> list[str]:
    return []


async def started(application: Application) -> asyncio.Task[int]:
    running = asyncio.create_task(application.run())
    await asyncio.wait_for(application.ready.wait(), 10)
    return running


async def test_parts_start_in_order_and_stop_in_reverse(diary: list[str]) -> None:
    application = Application(
        [Recorded(name, diary) for name in "abc"], on_ready=lambda: diary.append("ready")
    )
    running = await started(application)
    application.request_stop("enough", ExitCode.OK)
    assert await running == 0
    assert diary == ["+a", "+b", "+c", "ready", "-c", "-b", "-a"]
    assert application.left_behind == []


async def test_a_failed_start_stops_what_had_started_and_is_raised_as_it_is(diary: list[str]) -> None:
    error = PortTaken("Port 8080 is taken: choose another.")
    parts = [
        Recorded("a", diary),
        Recorded("b", diary),
        Failing("c", diary, start=error),
        Recorded("d", diary),
    ]
    application = Application(parts)
    with pytest.raises(PortTaken) as raised:
        await application.run()
    assert raised.value is error
    assert diary == ["+a", "+b", "+c", "-b", "-a"]
    assert not application.ready.is_set()


async def test_a_start_that_cancels_itself_is_no_silent_success(diary: list[str]) -> None:
    part = Failing("b", diary, start=asyncio.CancelledError())
    with pytest.raises(RuntimeError, match="start b"):
        await Application([Recorded("a", diary), part]).run()
    assert diary == ["+a", "+b", "-a"]


async def test_a_failing_on_ready_stops_everything(diary: list[str]) -> None:
    def fail() -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await Application([Recorded("a", diary)], on_ready=fail).run()
    assert diary == ["+a", "-a"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_stops_in_order_and_handlers_are_put_back(
    diary: list[str], number: signal.Signals
) -> None:
    def before(*_: object) -> None: ...

    former = signal.signal(number, before)
    try:
        running = await started(Application([Recorded("a", diary), Recorded("b", diary)]))
        assert signal.getsignal(number) is not before
        signal.raise_signal(number)
        assert await running == 0
        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, former)
    assert diary == ["+a", "+b", "-b", "-a"]


async def test_a_signal_during_start_breaks_it_off_in_order(diary: list[str]) -> None:
    slow = SlowStart("b", diary)
    application = Application([Recorded("a", diary), slow, Recorded("c", diary)])
    running = asyncio.create_task(application.run())
    await slow.starting.wait()
    signal.raise_signal(signal.SIGTERM)
    assert await running == 0
    assert diary == ["+a", "!b", "-a"]
    assert not application.ready.is_set()
    assert application.left_behind == []


async def test_a_second_signal_forces(diary: list[str], logged: Log) -> None:
    slow = SlowStop("b", diary)
    application = Application([Recorded("a", diary), slow])
    running = await started(application)
    signal.raise_signal(signal.SIGTERM)
    await slow.stopping.wait()
    signal.raise_signal(signal.SIGINT)
    async with asyncio.timeout(10):
        assert await running == 128 + signal.SIGINT
    assert diary == ["+a", "+b", "!b"]  # cancelled, and the rest not even asked
    assert application.left_behind == ["b", "a"]
    assert [line["part"] for line in logged() if line["level"] == "error"] == ["b", "a"]


async def test_a_second_signal_forces_a_start_that_will_not_break_off(diary: list[str]) -> None:
    release = asyncio.Event()
    starting, cancelled = asyncio.Event(), asyncio.Event()

    class Stubborn(Recorded):
        async def start(self) -> None:
            starting.set()
            try:
                await release.wait()
            except asyncio.CancelledError:
                cancelled.set()
                await release.wait()

    application = Application([Stubborn("a", diary)])
    running = asyncio.create_task(application.run())
    await starting.wait()
    signal.raise_signal(signal.SIGTERM)
    await cancelled.wait()
    signal.raise_signal(signal.SIGTERM)
    async with asyncio.timeout(10):
        assert await running == 143
    assert application.left_behind == ["a"]
    release.set()


async def test_a_start_that_ends_well_in_spite_of_the_stop_is_stopped(diary: list[str]) -> None:
    starting = asyncio.Event()

    class Deaf(Recorded):
        async def start(self) -> None:
            starting.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.diary.append(f"+{self.name}")

    application = Application([Deaf("a", diary)])
    running = asyncio.create_task(application.run())
    await starting.wait()
    application.request_stop("enough", ExitCode.OK)
    assert await running == 0
    assert diary == ["+a", "-a"]


async def test_a_start_that_fails_while_a_stop_is_asked_for_is_not_silent(
    diary: list[str], logged: Log
) -> None:
    class Asking(Recorded):
        async def start(self) -> None:
            application.request_stop("enough", ExitCode.OK)
            raise ValueError("stuck valve")

    application = Application([Recorded("a", diary), Asking("b", diary)])
    assert await application.run() == 0
    assert diary == ["+a", "-a"]
    (warning,) = [line for line in logged() if line["level"] == "warning"]
    assert (warning["part"], "stuck valve" in warning["exception"]) == ("b", True)


@pytest.mark.parametrize("loop_factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_timers_and_loops_are_parts(loop_factory: Callable[[], asyncio.AbstractEventLoop] | None) -> None:
    async def run_once() -> int:
        if ticker.runs == 2:
            application.request_stop("enough", ExitCode.OK)
        return 0

    timers = Timers(SystemClock())
    ticker = Loop("ticker", run_once, timers=timers, rng=random.Random(1), every=0.02)
    application = Application([timers, ticker])
    assert run_application(application, loop_factory=loop_factory) == 0
    assert (ticker.runs, ticker.failures, ticker.alive()) == (3, 0, False)


async def test_a_part_that_overruns_is_left_behind_and_the_others_still_stop(
    diary: list[str], logged: Log
) -> None:
    stubborn = SlowStop("c", diary, obedient=False)
    parts = [Recorded("a", diary), SlowStop("b", diary), stubborn, Recorded("d", diary)]
    application = Application(parts, stop_timeout=0.2)
    running = await started(application)
    application.request_stop("enough", ExitCode.OK)
    async with asyncio.timeout(10):
        assert await running == ExitCode.FAILURE
    assert diary == ["+a", "+b", "+c", "+d", "-d", "!c", "!b", "-a"]
    assert application.left_behind == ["c", "b"]
    assert [line["part"] for line in logged() if line["level"] == "error"] == ["c", "b"]
    stubborn.release.set()


async def test_a_slow_part_cannot_eat_the_time_of_those_behind_it(diary: list[str]) -> None:
    budgets: list[tuple[str, float]] = []

    class Watched(Application):
        async def _stop_part(self, part: Part, budget: float) -> None:
            budgets.append((part.name, budget))
            clock.advance(budget)

    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    application = Watched([Recorded(name, diary) for name in "abc"], stop_timeout=30, clock=clock)
    running = await started(application)
    application.request_stop("enough", ExitCode.OK)
    await running
    assert budgets == [("c", 28), ("b", 1), ("a", 1)]


async def test_a_stop_that_fails_is_logged_seen_in_the_exit_code_and_stops_nobody_else(
    diary: list[str], logged: Log
) -> None:
    parts = [Recorded("a", diary), Failing("b", diary, stop=ValueError("stuck valve")), Recorded("c", diary)]
    application = Application(parts)
    running = await started(application)
    application.request_stop("enough", ExitCode.OK)
    assert await running == ExitCode.FAILURE
    assert diary[-3:] == ["-c", "-b", "-a"]
    (error,) = [line for line in logged() if line["level"] == "error"]
    assert (error["part"], "stuck valve" in error["exception"]) == ("b", True)


async def test_a_part_asks_for_the_stop_from_another_thread_and_the_first_request_counts(
    diary: list[str],
) -> None:
    switch = StopSwitch()
    running = await started(Application([Recorded("a", diary)], stop_switch=switch))

    def ask() -> None:
        switch.request("the listener died", ExitCode.UNREACHABLE)
        switch.request("too late", ExitCode.OK)

    thread = threading.Thread(target=ask)
    thread.start()
    assert await asyncio.wait_for(running, 10) == ExitCode.UNREACHABLE
    thread.join()
    assert switch.reason == "the listener died"
    assert diary == ["+a", "-a"]


async def test_a_fatal_error_inside_is_raised_after_the_stop(diary: list[str]) -> None:
    application = Application([Recorded("a", diary)])
    running = await started(application)
    error = Conflict("Another agent has taken over this session.")
    application.stop_switch.fail(error)
    with pytest.raises(Conflict) as raised:
        await running
    assert raised.value is error
    assert diary == ["+a", "-a"]


async def test_a_stop_asked_for_before_the_run_starts_nothing(diary: list[str]) -> None:
    application = Application([Recorded("a", diary)])
    application.request_stop("never mind", ExitCode.OK)
    assert await application.run() == 0
    assert diary == []
    with pytest.raises(RuntimeError, match="runs once"):
        await application.run()


async def test_cancelling_the_run_stops_the_parts(diary: list[str]) -> None:
    running = await started(Application([Recorded("a", diary), Recorded("b", diary)]))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert diary == ["+a", "+b", "-b", "-a"]


async def test_cancelling_the_run_during_start_breaks_it_off(diary: list[str]) -> None:
    slow = SlowStart("b", diary)
    running = asyncio.create_task(Application([Recorded("a", diary), slow]).run())
    await slow.starting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert diary == ["+a", "!b", "-a"]


def test_it_runs_in_a_thread_that_gets_no_signals(diary: list[str]) -> None:
    application = Application(
        [Recorded("a", diary)], on_ready=lambda: application.request_stop("enough", ExitCode.OK)
    )
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run_application(application)))
    thread.start()
    thread.join(10)
    assert codes == [0]
    assert diary == ["+a", "-a"]


def test_run_application_raises_what_prevented_the_start(diary: list[str]) -> None:
    part = Failing("a", diary, start=PortTaken("Port 8080 is taken."))
    with pytest.raises(PortTaken):
        run_application(Application([part]))
