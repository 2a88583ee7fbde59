"""Brings back what ended by itself: a development system survives its own experiments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.dev")


class RestartedPart(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def running(self) -> bool: ...

    async def start(self) -> None: ...


class Restarter:
    def __init__(self, watched: list[RestartedPart], on_restart: Callable[[], None]) -> None:
        self._watched = watched
        self._on_restart = on_restart

    async def run_once(self) -> int:
        """Restart what has ended; return 0 always, so that a process that dies at once is not spun."""
        for one in self._watched:
            if not one.running:
                log.warning("A part ended by itself and is started again.", part=one.name)
                await one.start()
                self._on_restart()
        return 0
