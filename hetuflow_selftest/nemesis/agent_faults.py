"""Agents and their keepers die and stand still, while tasks of theirs run."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from hetuflow_selftest.history import boottime
from hetuflow_selftest.scene.processes import Program
from hetuflow_selftest.scene.scene import Scene

Facts = dict[str, Any]

_LONGEST_WAIT = 15.0


@asynccontextmanager
async def kill_agent(scene: Scene, lots: random.Random) -> AsyncIterator[Facts]:
    """Its tasks go on with the keeper, and the next agent finds them there."""
    victim = await busy_agent(scene, lots)
    facts: Facts = {"victim": victim.name, "at": boottime()}
    await victim.kill()
    yield facts
    victim.start()


@asynccontextmanager
async def stop_agent(scene: Scene, lots: random.Random) -> AsyncIterator[Facts]:
    """It stands still for longer than its leases, and the keeper ends its tasks before they do."""
    victim = await busy_agent(scene, lots)
    began = boottime()
    victim.signal(signal.SIGSTOP)
    try:
        yield {"victim": victim.name, "at": began}
        await asyncio.sleep(max(0.0, began + scene.settings.lease * 1.3 - boottime()))
    finally:
        victim.signal(signal.SIGCONT)


@asynccontextmanager
async def kill_keeper(scene: Scene, lots: random.Random) -> AsyncIterator[Facts]:
    victim = await busy_agent(scene, lots)
    keepers = scene.keepers_of(victim)
    facts: Facts = {"victim": victim.name, "killed": len(keepers), "at": boottime()}
    for pid in keepers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    yield facts


async def busy_agent(scene: Scene, lots: random.Random) -> Program:
    """One that runs something just now, whatever the lots say if none does for long."""
    deadline = boottime() + _LONGEST_WAIT
    while boottime() < deadline:
        busy = [agent for agent in scene.agents if agent.running and scene.runs_tasks(agent)]
        if busy:
            return lots.choice(busy)
        await asyncio.sleep(0.1)
    return lots.choice(scene.agents)
