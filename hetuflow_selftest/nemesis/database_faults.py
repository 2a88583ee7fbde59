"""PostgreSQL dies and comes back."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hetuflow_selftest.nemesis.signs import leader_at_work
from hetuflow_selftest.nemesis.standing_still import standing_still
from hetuflow_selftest.scene.network import POSTGRES
from hetuflow_selftest.scene.processes import descendants
from hetuflow_selftest.scene.scene import Scene

Facts = dict[str, Any]

_AWAY_SECONDS = 1.0


@asynccontextmanager
async def crash_postgres(scene: Scene, _: random.Random) -> AsyncIterator[Facts]:
    """All of it at once, with every session in the middle of whatever it did."""
    os.kill(scene.postgres.pid, signal.SIGKILL)
    await asyncio.sleep(_AWAY_SECONDS)
    scene.start_postgres()
    yield {"victim": POSTGRES}


@asynccontextmanager
async def pause_postgres(scene: Scene, _: random.Random) -> AsyncIterator[Facts]:
    """It stands still for longer than the leader's lease and all others, and finds them expired."""
    await leader_at_work(scene)
    pids = [scene.postgres.pid, *descendants([scene.postgres.pid])]
    async with standing_still(scene, POSTGRES, pids) as facts:
        yield facts
