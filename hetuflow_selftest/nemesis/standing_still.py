"""Processes that stand still for longer than all leases last, and then go on as if nothing had been."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hetuflow_selftest.history import boottime
from hetuflow_selftest.scene.processes import signal_all
from hetuflow_selftest.scene.scene import Scene


@asynccontextmanager
async def standing_still(scene: Scene, victim: str, pids: Sequence[int]) -> AsyncIterator[dict[str, Any]]:
    facts: dict[str, Any] = {"victim": victim, "stopped": len(pids), "at": boottime()}
    signal_all(pids, signal.SIGSTOP)
    try:
        yield facts
        await scene.outlast_leases(facts["at"])
    finally:
        signal_all(pids, signal.SIGCONT)
