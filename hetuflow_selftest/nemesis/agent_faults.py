"""Agents and their keepers die and stand still, while tasks of theirs run."""

from __future__ import annotations

import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hetuflow_selftest.history import boottime
from hetuflow_selftest.nemesis.signs import busy_agent, given_up
from hetuflow_selftest.nemesis.standing_still import standing_still
from hetuflow_selftest.scene.processes import descendants, signal_all
from hetuflow_selftest.scene.scene import Scene

Facts = dict[str, Any]


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
    async with standing_still(scene, victim.name, [victim.pid]) as facts:
        yield facts


@asynccontextmanager
async def stop_keeper(scene: Scene, lots: random.Random) -> AsyncIterator[Facts]:
    """Its agent goes on without it, and so do the tasks."""
    victim = await busy_agent(scene, lots)
    async with standing_still(scene, victim.name, scene.keepers_of(victim)) as facts:
        yield facts


@asynccontextmanager
async def pause_host(scene: Scene, lots: random.Random) -> AsyncIterator[Facts]:
    """Agent, keeper and tasks stand still at once until given up, as on a machine that is moved or sleeps."""
    victim = await busy_agent(scene, lots)
    keepers = scene.keepers_of(victim)
    async with standing_still(scene, victim.name, [victim.pid, *keepers, *descendants(keepers)]) as facts:
        yield facts
        await given_up(scene, victim, facts["at"])


@asynccontextmanager
async def kill_keeper(scene: Scene, lots: random.Random) -> AsyncIterator[Facts]:
    victim = await busy_agent(scene, lots)
    keepers = scene.keepers_of(victim)
    facts: Facts = {"victim": victim.name, "killed": len(keepers), "at": boottime()}
    signal_all(keepers, signal.SIGKILL)
    yield facts
