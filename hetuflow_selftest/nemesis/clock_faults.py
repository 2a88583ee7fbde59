"""Wall clocks step, on one server's host and on one agent's."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hetuflow_selftest.history import boottime
from hetuflow_selftest.nemesis.signs import Hearing
from hetuflow_selftest.scene.scene import Scene

Facts = dict[str, Any]


@asynccontextmanager
async def step_clocks(scene: Scene, lots: random.Random) -> AsyncIterator[Facts]:
    """One way by half a minute, and back again; no deadline may go by it."""
    victims = [lots.choice(scene.servers), lots.choice(scene.agents)]
    hearing = Hearing(scene)
    facts: Facts = {"victim": ", ".join(one.name for one in victims), "at": boottime()}
    for victim in victims:
        scene.step_clock(victim, lots.choice((-30.0, 30.0)))
    try:
        yield facts
        await hearing.a_wrong_clock(victims[1].name)
    finally:
        for victim in victims:
            scene.step_clock(victim, 0.0)
