"""The disk of an agent fills up."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hetuflow_selftest.history import boottime
from hetuflow_selftest.nemesis.refusal import NotHere
from hetuflow_selftest.nemesis.signs import Hearing
from hetuflow_selftest.scene.scene import Scene

Facts = dict[str, Any]


@asynccontextmanager
async def fill_disk(scene: Scene, _: random.Random) -> AsyncIterator[Facts]:
    """In the middle of work: it takes no more of it, others do, and what runs and has run is reported."""
    if not scene.small_disk.mounted:
        raise NotHere("it takes root, and the right to mount a small file system")
    victim, *others = (agent.name for agent in scene.agents)
    await Hearing(scene).a_start(victim)
    hearing, began = Hearing(scene), boottime()
    scene.small_disk.fill()
    try:
        yield {"victim": victim, "at": began}
        await hearing.none_but_others_starting(victim, others)
    finally:
        scene.small_disk.make_room()
