"""The executors of this agent: the built-in ones and those of other packages.

Entry points are read from installed metadata. Without metadata (a source tree on the path, a frozen program)
the built-in executors are still available. An entry point of the same name replaces a built-in executor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Final

import structlog

from hetuflow_agent.executors.command import CommandExecutor
from hetuflow_agent.executors.http import HttpExecutor
from hetuflow_agent.executors.interface import Executor, ExecutorHost, Unavailable
from hetuflow_agent.executors.python import PythonExecutor

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.executors")

GROUP: Final = "hetuflow.executors"

# The type of an entry point; `_made` checks what it returns.
Maker = Callable[[ExecutorHost], Executor]
BUILT_IN: Final[Mapping[str, Maker]] = {
    executor.name: executor for executor in (CommandExecutor, HttpExecutor, PythonExecutor)
}


def load_executors(host: ExecutorHost) -> dict[str, Executor]:
    """Executors by name; one that cannot be made is left out and logged."""
    made = {name: _made(name, make, host) for name, make in _makers().items()}
    return {name: executor for name, executor in made.items() if executor is not None}


def _makers() -> dict[str, Maker]:
    makers: dict[str, Maker] = dict(BUILT_IN)
    for entry in entry_points(group=GROUP):
        try:
            makers[entry.name] = entry.load()
        except Exception:
            log.exception("executor could not be loaded, leaving it out", executor=entry.name)
    return makers


class Executors:
    """All executors as a part of the agent."""

    name = "executors"

    def __init__(self, executors: dict[str, Executor]) -> None:
        self._executors = executors
        # No longer offered; their running work continues.
        self._withdrawn: set[str] = set()

    @property
    def offered(self) -> list[str]:
        return sorted(self._executors.keys() - self._withdrawn)

    def adapt(self, host: ExecutorHost) -> None:
        """The agent's settings have changed: executors may have become available or unavailable."""
        for name, make in _makers().items():
            known = self._executors.get(name)
            if known is None:
                if (made := _made(name, make, host)) is not None:
                    self._executors[name] = made
                continue
            try:
                known.adapt(host)
                self._withdrawn.discard(name)
            except Unavailable as error:
                log.info("executor no longer offered", executor=name, why=str(error))
                self._withdrawn.add(name)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        for name, executor in self._executors.items():
            try:
                await executor.stop()
            except Exception:
                log.exception("executor failed to stop", executor=name)


def _made(name: str, make: Maker, host: ExecutorHost) -> Executor | None:
    try:
        executor = make(host)
    except Unavailable as error:
        log.debug("executor not offered", executor=name, why=str(error))
        return None
    except Exception:
        log.exception("executor could not be created, leaving it out", executor=name)
        return None
    said = getattr(executor, "name", None)
    if said != name:
        # Jobs would name one executor, and the agent would offer another.
        log.error("executor left out: its name differs from its entry point", entry=name, name=said)
        return None
    return executor
