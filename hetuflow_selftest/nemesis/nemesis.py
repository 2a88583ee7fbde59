"""One fault after the other, or those that touch different things beside each other, and a diary of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from hetuflow_selftest.history import History, boottime
from hetuflow_selftest.nemesis.faults import FAULTS, tracks
from hetuflow_selftest.nemesis.refusal import NotHere
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
        order = sorted(self._settings.faults)
        self._random.shuffle(order)
        # Lots of its own for each: who is first to draw is not for the machine to decide.
        seeds = {name: self._random.random() for name in order}

        async def follow(track: list[str]) -> None:
            for name in track:
                tell(f"fault: {name}")
                await self._one(name, seeds[name], newcomer)
                await asyncio.sleep(self._settings.calm)

        await asyncio.gather(*(follow(track) for track in tracks(order, together=self._settings.together)))

    async def _one(self, name: str, seed: float, newcomer: Newcomer) -> None:
        began = boottime()
        try:
            async with FAULTS[name].deed(self._scene, random.Random(seed)) as facts:  # noqa: S311  as above
                self._history.write("begin", id=name, fault=name, **{"at": began, **facts})
                coming = asyncio.create_task(newcomer())
                await asyncio.sleep(self._settings.hold)
            self._history.write("end", id=name, fault=name, **{**facts, "at": boottime()})
            await coming
        except NotHere as reason:
            self._history.write("unsupported", fault=name, why=str(reason))
