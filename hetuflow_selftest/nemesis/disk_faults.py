"""The disk of an agent fills up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hetuflow_selftest.history import boottime
from hetuflow_selftest.nemesis.refusal import NotHere
from hetuflow_selftest.scene.scene import Scene

Facts = dict[str, Any]

# To run out of what it had taken before, and to be seen doing nothing after that.
_LONG_ENOUGH = 5.0


@asynccontextmanager
async def fill_disk(scene: Scene, _: random.Random) -> AsyncIterator[Facts]:
    """It takes no more work, and what runs and has run is reported."""
    if not scene.small_disk.mounted:
        raise NotHere("it takes root, and the right to mount a small file system")
    scene.small_disk.fill()
    began = boottime()
    try:
        yield {"victim": scene.agents[0].name, "at": began}
        await asyncio.sleep(max(0.0, began + _LONG_ENOUGH - boottime()))
    finally:
        scene.small_disk.make_room()
