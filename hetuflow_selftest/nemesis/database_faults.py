"""PostgreSQL dies and comes back."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hetuflow_selftest.scene.scene import Scene

Facts = dict[str, Any]

_AWAY_SECONDS = 1.0


@asynccontextmanager
async def crash_postgres(scene: Scene, _: random.Random) -> AsyncIterator[Facts]:
    """All of it at once, with every session in the middle of whatever it did."""
    os.kill(scene.postgres.pid, signal.SIGKILL)
    await asyncio.sleep(_AWAY_SECONDS)
    await scene.postgres.start()
    yield {"victim": "postgres"}
