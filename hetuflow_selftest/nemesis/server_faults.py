"""Servers die, stand still and are replaced."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hetuflow_selftest.history import boottime
from hetuflow_selftest.nemesis.signs import another_leads, generated, leader_at_work, used_server
from hetuflow_selftest.nemesis.standing_still import standing_still
from hetuflow_selftest.scene.processes import Program
from hetuflow_selftest.scene.scene import Scene

Facts = dict[str, Any]


@asynccontextmanager
async def kill_leader(scene: Scene, _: random.Random) -> AsyncIterator[Facts]:
    victim, facts = await leader(scene)
    facts |= {"at": boottime(), "died": True}
    await victim.kill()
    victim.start()
    yield facts
    await _ready(scene, victim)
    await generated(scene, facts.get("epoch", 0))


@asynccontextmanager
async def stop_leader(scene: Scene, _: random.Random) -> AsyncIterator[Facts]:
    """It stands still until another one leads, and then goes on as if nothing had been."""
    victim, facts = await leader(scene)
    victim.signal(signal.SIGSTOP)
    try:
        yield facts
        await another_leads(scene, facts.get("epoch", 0))
    finally:
        victim.signal(signal.SIGCONT)
    # Not before: it is to go on while there is something left that it might do as a leader.
    await generated(scene, facts.get("epoch", 0))


@asynccontextmanager
async def stop_server(scene: Scene, lots: random.Random) -> AsyncIterator[Facts]:
    """One that does not lead stands still for longer than leases last; its kernel still takes connections."""
    victim = await _follower(scene, lots)
    async with standing_still(scene, victim.name, [victim.pid]) as facts:
        yield facts


@asynccontextmanager
async def kill_server(scene: Scene, lots: random.Random) -> AsyncIterator[Facts]:
    victim = await _follower(scene, lots)
    facts: Facts = {"victim": victim.name, "at": boottime()}
    await victim.kill()
    victim.start()
    yield facts
    await _ready(scene, victim)


@asynccontextmanager
async def restart_servers(scene: Scene, lots: random.Random) -> AsyncIterator[Facts]:
    """One after the other, each asked to end in order, as an upgrade would."""
    order = lots.sample(scene.servers, len(scene.servers))
    facts: Facts = {"victim": ", ".join(one.name for one in order)}
    yield facts
    orderly = 0
    for victim in order:
        orderly += await victim.stop(30)
        victim.start()
        await _ready(scene, victim)
    facts["orderly"] = orderly


async def leader(scene: Scene) -> tuple[Program, Facts]:
    """Wait for one that makes fires; who it is, and in which term."""
    await leader_at_work(scene)
    for _ in range(100):
        leading = await scene.leading()
        if leading is not None:
            victim, holder, epoch = leading
            return victim, {"victim": victim.name, "holder": holder, "epoch": epoch}
        await asyncio.sleep(0.2)
    return scene.servers[0], {"victim": scene.servers[0].name}


async def _follower(scene: Scene, lots: random.Random) -> Program:
    leading, _ = await leader(scene)
    return await used_server(scene, lots, [one for one in scene.servers if one is not leading])


async def _ready(scene: Scene, victim: Program) -> None:
    await scene.ready(scene.server_urls[scene.servers.index(victim)])
