"""The lifecycle of a process: start its parts in order, wait, stop them in reverse order.

    first SIGINT or SIGTERM    orderly stop within `stop_timeout`; exit code 0, also while still starting
    second one                 forced: parts that have not stopped are abandoned; exit code 128 + signal
    StopSwitch.request/fail    a part requests the orderly stop, with an exit code or with the error to raise

A stop that fails or takes too long turns exit code 0 into 1, so that it is noticed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol

import structlog

from hetuflow_core.runtime.clock import Clock, SystemClock
from hetuflow_core.runtime.exit_codes import ExitCode, exit_code_for

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.lifecycle")

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

# Time for a late part to react to its cancellation.
_CANCEL_GRACE: Final = 0.5
# Time reserved for each later part, so that a slow part cannot use up the whole timeout.
_RESERVE: Final = 1.0
# Time to print the error before the process is ended.
_EXIT_DELAY: Final = 2.0
# Allocations between garbage collections.
_GC_THRESHOLD: Final = 20_000


class Part(Protocol):
    """A component that is started and stopped: a pool, a server, a loop.

    `start` returns when the part is ready; if it raises or is cancelled, it has cleaned up. `stop` is called
    only after `start` has returned, and from another task.
    """

    @property
    def name(self) -> str: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class StopSwitch:
    """Requests the stop of the application, from any thread. The first request counts."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.exit_code: int = ExitCode.OK
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._event = asyncio.Event()
        self._event_loop: asyncio.AbstractEventLoop | None = None

    @property
    def requested(self) -> bool:
        return self.reason is not None

    def request(self, reason: str, exit_code: int = ExitCode.FAILURE) -> None:
        self._set(reason, exit_code, None)

    def fail(self, error: BaseException) -> None:
        """Stop, and let the application raise `error`."""
        self._set(f"{type(error).__name__}: {error}", exit_code_for(error), error)

    async def wait(self) -> None:
        """Return when a stop has been requested, also before this call."""
        with self._lock:
            self._event_loop = asyncio.get_running_loop()
            if self.requested:
                self._event.set()
        await self._event.wait()

    def _set(self, reason: str, exit_code: int, error: BaseException | None) -> None:
        with self._lock:
            if self.requested:
                return
            self.reason, self.exit_code, self.error = reason, exit_code, error
            if self._event_loop is not None:
                with suppress(RuntimeError):  # the event loop is closed: everything has stopped
                    self._event_loop.call_soon_threadsafe(self._event.set)


class Application:
    def __init__(
        self,
        parts: Sequence[Part],
        *,
        stop_timeout: float = 30.0,
        stop_switch: StopSwitch | None = None,
        on_ready: Callable[[], None] | None = None,
        clock: Clock | None = None,
        signals: Sequence[signal.Signals] = STOP_SIGNALS,
    ) -> None:
        self.ready = asyncio.Event()
        self.stop_switch = stop_switch or StopSwitch()
        self.left_behind: list[str] = []
        self._parts = tuple(parts)
        self._started: list[Part] = []
        self._stop_timeout = stop_timeout
        self._stop_deadline: float | None = None
        self._stop_failed = False
        self._on_ready = on_ready
        self._clock = clock or SystemClock()
        self._signals = tuple(signals)
        self._signals_seen = 0
        self._forced_by: int | None = None
        self._force = asyncio.Event()
        self._has_run = False

    def request_stop(self, reason: str, exit_code: int = ExitCode.FAILURE) -> None:
        self.stop_switch.request(reason, exit_code)

    async def run(self) -> int:
        """Run until a stop is requested; return the exit code. Errors during the start are raised."""
        if self._has_run:
            raise RuntimeError("An application runs once: create a new one.")
        self._has_run = True
        with self._catching_signals():
            stop_request = asyncio.create_task(self.stop_switch.wait(), name="wait for stop")
            try:
                await self._start_parts(stop_request)
                if not self.stop_switch.requested:
                    self._announce()
                await stop_request
            finally:
                stop_request.cancel()
                await self._stop_parts()
        return self._outcome()

    def _announce(self) -> None:
        log.info("ready", parts=[part.name for part in self._started])
        self.ready.set()
        if self._on_ready is not None:
            self._on_ready()

    def _outcome(self) -> int:
        if self._forced_by is not None:
            return 128 + self._forced_by
        if self.stop_switch.error is not None:
            raise self.stop_switch.error
        if self.left_behind or self._stop_failed:
            return self.stop_switch.exit_code or ExitCode.FAILURE
        return self.stop_switch.exit_code

    async def _start_parts(self, stop_request: asyncio.Task[None]) -> None:
        for part in self._parts:
            if self.stop_switch.requested:
                return
            log.debug("starting part", part=part.name)
            starting = asyncio.create_task(part.start(), name=f"start {part.name}")
            try:
                await asyncio.wait({starting, stop_request}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not starting.done():
                    await self._cancel_start(part, starting)
                error = _error_of(starting)
                if starting.done() and error is None:
                    self._started.append(part)
            if error is not None:
                self._handle_failed_start(part, error, cancelled=starting.cancelled())

    def _handle_failed_start(self, part: Part, error: BaseException, *, cancelled: bool) -> None:
        if not self.stop_switch.requested:
            raise error
        if not cancelled:
            log.warning("part failed to start during a stop", part=part.name, exc_info=error)

    async def _cancel_start(self, part: Part, starting: asyncio.Task[None]) -> None:
        log.info("cancelling the start of a part", part=part.name)
        starting.cancel()
        if not await self._done_in_time(starting, self._seconds_left()):
            self._leave_behind(part)

    async def _stop_parts(self) -> None:
        log.info(
            "stopping",
            reason=self.stop_switch.reason or "an error",
            parts=[part.name for part in reversed(self._started)],
        )
        reserve = min(_RESERVE, self._stop_timeout / (2 * max(1, len(self._started))))
        while self._started:
            part = self._started.pop()
            if self._force.is_set():
                self._leave_behind(part)
            else:
                budget = max(reserve, self._seconds_left() - reserve * len(self._started))
                await self._stop_part(part, budget)
        log.info("stopped", left_behind=self.left_behind)

    async def _stop_part(self, part: Part, budget: float) -> None:
        log.debug("stopping part", part=part.name)
        stopping = asyncio.create_task(part.stop(), name=f"stop {part.name}")
        try:
            in_time = await self._done_in_time(stopping, budget)
        finally:
            if not stopping.done():
                stopping.cancel()
        if not in_time:
            await asyncio.wait({stopping}, timeout=_CANCEL_GRACE)
            self._leave_behind(part)
        elif (error := _error_of(stopping)) is not None:
            self._stop_failed = True
            log.error("part failed to stop", part=part.name, exc_info=error)

    def _leave_behind(self, part: Part) -> None:
        self.left_behind.append(part.name)
        log.error("part did not stop and is abandoned", part=part.name, forced=self._force.is_set())

    async def _done_in_time(self, task: asyncio.Task[None], seconds: float) -> bool:
        """Wait for `task` for at most `seconds`, or until a second signal."""
        forced = asyncio.create_task(self._force.wait(), name="wait for force")
        try:
            await asyncio.wait({task, forced}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            forced.cancel()
        return task.done()

    def _seconds_left(self) -> float:
        """Return the rest of `stop_timeout`, which begins with the first call."""
        now = self._clock.monotonic()
        if self._stop_deadline is None:
            self._stop_deadline = now + self._stop_timeout
        return max(0.0, self._stop_deadline - now)

    @contextmanager
    def _catching_signals(self) -> Iterator[None]:
        # Python delivers signals only to the main thread; in other threads the caller uses the switch.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        event_loop = asyncio.get_running_loop()
        former = {number: signal.getsignal(number) for number in self._signals}
        for number in self._signals:
            event_loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number, handler in former.items():
                event_loop.remove_signal_handler(number)
                if handler is not None:  # None: the handler was not set by Python and cannot be restored
                    signal.signal(number, handler)

    def _on_signal(self, number: signal.Signals) -> None:
        self._signals_seen += 1
        if self._signals_seen == 1:
            self.stop_switch.request(number.name, ExitCode.OK)
            return
        if self._forced_by is None:
            log.warning("second signal, forcing the stop", signal=number.name)
            self._forced_by = number
        self._force.set()


def run_application(
    application: Application, *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> int:
    """Run an application in a new event loop; return the exit code.

    If parts were abandoned, the process exits immediately: closing the event loop would wait for them.
    """
    runner = asyncio.Runner(loop_factory=loop_factory)
    try:
        code = runner.run(_run_with_tuned_gc(application))
    except BaseException as error:
        if application.left_behind:
            _end_soon(exit_code_for(error))
        else:
            runner.close()
        raise
    if application.left_behind:
        _end(code)
    runner.close()
    return code


async def _run_with_tuned_gc(application: Application) -> int:
    tuning = asyncio.create_task(_tune_gc(application), name="tune garbage collection")
    try:
        return await application.run()
    finally:
        tuning.cancel()


async def _tune_gc(application: Application) -> None:
    """Exclude the objects of loaded modules from garbage collection, because they stay anyway.

    A full collection pauses a server for 0.1 seconds, and under load one ran every three seconds. The
    threshold makes small collections rare: a batch creates thousands of objects without cycles.
    """
    await application.ready.wait()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    if not task.done():
        return None
    if task.cancelled():
        return RuntimeError(f"'{task.get_name()}' cancelled itself.")
    return task.exception()


def _end_soon(code: int) -> None:
    """Exit after the caller has printed the error; abandoned threads would keep the process alive."""
    timer = threading.Timer(_EXIT_DELAY, _end, [code])
    timer.daemon = True
    timer.start()


def _end(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
