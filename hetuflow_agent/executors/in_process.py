"""An attempt that is a task of the agent's own event loop."""

from __future__ import annotations

import asyncio
import contextvars
import signal
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hetuflow_agent.processes.command import Exit


class LoopExecution:
    """Ends as soon as it is told to: there is nothing it would have to put in order first.

    Whatever files it has opened are closed when it has ended, and it starts nothing that could live on.
    """

    def __init__(self, work: Coroutine[Any, Any, Exit], *, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(work, name=name, context=contextvars.Context())

    async def wait(self) -> Exit:
        await asyncio.wait({self._task})
        return replace(Exit() if self._task.cancelled() else self._task.result(), no_process_left=True)

    async def end(self, grace: float) -> Exit:  # noqa: ARG002  nothing to wait for
        self._task.cancel()
        return await self.wait()

    def signal(self, number: signal.Signals) -> None:  # noqa: ARG002  each of them means: end
        self.kill_tree()

    def kill_tree(self) -> None:
        with suppress(RuntimeError):  # the event loop is closed, and the work with it
            self._loop.call_soon_threadsafe(self._task.cancel)

    def close(self) -> None:
        pass
