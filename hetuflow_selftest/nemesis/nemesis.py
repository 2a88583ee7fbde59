"""One fault after the other, and a diary of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from hetuflow_selftest.history import History, boottime
from hetuflow_selftest.nemesis.faults import FAULTS, NotHere
from hetuflow_selftest.scene.scene import Scene
from hetuflow_selftest.settings import RunSettings

Newcomer = Callable[[], Coroutine[Any, Any, None]]


class Nemesis:
    def __init__(self, scene: Scene, settings: RunSettings, history: History) -> None:
        self._scene = scene
        self._settings = settings
        self._history = history
        self._random = random.Random(settings.seed)  # noqa: S311  lots that can be drawn again

    async def torment(self, tell: Callable[[str], None], newcomer: Newcomer) -> None:
        """Make every fault of the run, in the order the seed says; `newcomer` is asked for during each."""
        order = list(self._settings.faults)
        self._random.shuffle(order)
        for number, name in enumerate(order, start=1):
            tell(f"fault {number} of {len(order)}: {name}")
            await self._one(number, name, newcomer)
            await asyncio.sleep(self._settings.calm)

    async def _one(self, number: int, name: str, newcomer: Newcomer) -> None:
        began = boottime()
        try:
            async with FAULTS[name](self._scene, self._random) as facts:
                self._history.write("begin", at=began, id=number, fault=name, **facts)
                coming = asyncio.create_task(newcomer())
                await asyncio.sleep(self._settings.hold)
            self._history.write("end", id=number, fault=name, **facts)
            await coming
        except NotHere as reason:
            self._history.write("unsupported", fault=name, why=str(reason))
