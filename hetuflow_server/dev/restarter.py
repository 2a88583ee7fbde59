"""Restart parts of a development system that stopped unexpectedly."""

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
        """Restart stopped parts; always return 0, so that a crashing part is not restarted in a busy loop."""
        for part in self._watched:
            if not part.running:
                log.warning("component stopped unexpectedly, restarting", component=part.name)
                await part.start()
                self._on_restart()
        return 0
