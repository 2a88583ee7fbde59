"""Calls of functions inside the agent, as executions: one in a thread, one on the event loop of all tasks.

Neither can be killed as a process can. A thread is told (`TaskCancelled` at the next check), then has an
exception raised in it, which waits for the next line of Python; a coroutine is cancelled. What ends by none
of these is given up: its attempt ends, and the agent says that the function still runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from hetuflow_agent.executors.output_capture import OutputLimit, TaskStreams
from hetuflow_agent.processes.command import Exit
from hetuflow_core.client.task import TaskCancelled, TaskContext, TaskFunction, entered, output_of
from hetuflow_core.errors import Invalid

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.python")

# After it was made to end; the next line of Python may be far away.
_LAST_SECONDS: Final = 2.0
_LONGEST_MESSAGE: Final = 500
_STUCK: Final = Exit(
    reason="python_stuck",
    message="The function did not end when it was told to and still runs: use @task(process=True).",
)


class TaskKilled(BaseException):
    """Raised inside a function that did not listen; not an Exception, so that few catch it."""


class FunctionCall:
    """One function with its arguments, and what becomes of its result.

    Its files are ours: what it has started, threads or processes, was given none of them.
    """

    def __init__(
        self,
        function: TaskFunction[..., Any],
        arguments: Mapping[str, Any],
        context: TaskContext,
        streams: TaskStreams,
        output: Path,
    ) -> None:
        self.function = function
        self.context = context
        self._arguments = arguments
        self._streams = streams
        self._output = output

    def run(self) -> Exit:
        began = time.thread_time()
        with self._streams.current():
            entered(self.context)
            try:
                end = self._succeed(self.function(**self._arguments))
            except BaseException as error:  # noqa: BLE001  whatever it is, it is the task's
                end = self._fail(error)
        return replace(end, cpu_seconds=round(time.thread_time() - began, 3), no_process_left=True)

    async def run_async(self) -> Exit:
        with self._streams.current():
            entered(self.context)
            try:
                end = self._succeed(await self.function(**self._arguments))
            except BaseException as error:  # noqa: BLE001  whatever it is, it is the task's
                end = self._fail(error)
        return replace(end, no_process_left=True)

    def close(self) -> None:
        self._streams.close()

    def _succeed(self, result: Any) -> Exit:
        said = output_of(result)
        if said is not None:
            self._output.write_bytes(msgspec.json.encode(said))
        return Exit(exit_code=0)

    def _fail(self, error: BaseException) -> Exit:
        if self.context.cancelled.is_set() and isinstance(
            error, (TaskCancelled, TaskKilled, asyncio.CancelledError)
        ):
            return Exit()
        if isinstance(error, OutputLimit):
            return Exit(reason="output_limit", message=str(error))
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            return Exit(exit_code=code & 0xFF)
        with suppress(OSError, ValueError, OutputLimit):
            self._streams.write("stderr", "".join(traceback.format_exception(error)))
        message = error.message if isinstance(error, Invalid) else f"{type(error).__name__}: {error}"
        return Exit(exit_code=1, reason="exception", message=_readable(message[:_LONGEST_MESSAGE]))


def _readable(message: str) -> str:
    """An exception may say anything; no NUL and no half of a character can be sent or stored."""
    whole = message.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")


class ThreadExecution:
    """A function in a thread of its own, which does not keep the agent from ending."""

    def __init__(self, call: FunctionCall) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[Exit] = self._loop.create_future()
        self._running = True
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=call.function.path, daemon=True)
        self._thread.start()

    async def wait(self) -> Exit:
        return await asyncio.shield(self._end)

    async def end(self, grace: float) -> Exit:
        self.signal(signal.SIGTERM)
        for seconds, then in ((grace, self.kill_tree), (_LAST_SECONDS, self._give_up)):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await self.wait()
            then()
        return await self.wait()

    def signal(self, number: signal.Signals) -> None:  # noqa: ARG002  each of them means: end
        self._call.context.cancelled.set()

    def kill_tree(self) -> None:
        self._call.context.cancelled.set()
        with self._lock:
            if self._running and self._thread.ident is not None:
                raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
                raise_in(ctypes.c_ulong(self._thread.ident), ctypes.py_object(TaskKilled))

    def close(self) -> None:
        """Nothing: the files are closed when the function has ended, which may be later."""

    def _run(self) -> None:
        end = Exit()
        try:
            end = contextvars.Context().run(self._call.run)
        except TaskKilled:  # it came when the function was just done
            pass
        finally:
            with self._lock:
                self._running = False
            self._call.close()
            with suppress(RuntimeError):  # the agent has ended meanwhile
                self._loop.call_soon_threadsafe(self._settle, end)

    def _settle(self, end: Exit) -> None:
        if not self._end.done():
            self._end.set_result(end)

    def _give_up(self) -> None:
        if not self._end.done():
            log.error("A function does not end and holds a thread.", function=self._call.function.path)
            self._end.set_result(_STUCK)


class TaskLoop:
    """An event loop in a thread of its own: a coroutine that blocks it holds up tasks, not the agent."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, call: FunctionCall, on_end: Callable[[Exit], None]) -> Callable[[], None]:
        """Begin; `on_end` is called in this loop's thread. What is returned cancels, from any thread."""
        loop = self._running_loop()
        begun: list[asyncio.Task[Exit]] = []

        def begin() -> None:
            task = loop.create_task(call.run_async(), context=contextvars.Context())
            task.add_done_callback(lambda done: on_end(Exit() if done.cancelled() else done.result()))
            begun.append(task)

        def cancel() -> None:
            with suppress(RuntimeError):  # the agent has ended meanwhile
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in begun])

        loop.call_soon_threadsafe(begin)
        return cancel

    def stop(self) -> None:
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_LAST_SECONDS)
        if not thread.is_alive():
            loop.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="task loop", daemon=True)
            self._thread.start()
        return self._loop


class CoroutineExecution:
    """A coroutine on the loop of all tasks."""

    def __init__(self, call: FunctionCall, tasks: TaskLoop) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[Exit] = self._loop.create_future()
        self._cancel = tasks.submit(call, self._on_end)

    async def wait(self) -> Exit:
        return await asyncio.shield(self._end)

    async def end(self, grace: float) -> Exit:
        self.kill_tree()
        for seconds, then in ((grace, self.kill_tree), (_LAST_SECONDS, self._give_up)):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await self.wait()
            then()
        return await self.wait()

    def signal(self, number: signal.Signals) -> None:  # noqa: ARG002  each of them means: end
        self.kill_tree()

    def kill_tree(self) -> None:
        self._call.context.cancelled.set()
        self._cancel()

    def close(self) -> None:
        """Nothing: the files are closed when the coroutine has ended, which may be later."""

    def _on_end(self, end: Exit) -> None:
        self._call.close()
        with suppress(RuntimeError):  # the agent has ended meanwhile
            self._loop.call_soon_threadsafe(self._settle, end)

    def _settle(self, end: Exit) -> None:
        if not self._end.done():
            self._end.set_result(end)

    def _give_up(self) -> None:
        if not self._end.done():
            log.error("A coroutine does not end and holds up the others.", function=self._call.function.path)
            self._end.set_result(_STUCK)
