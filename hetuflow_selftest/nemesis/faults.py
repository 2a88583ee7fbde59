"""The faults: how each one is made and undone, and what is written down about it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from hetuflow_selftest.scene.scene import Scene

Facts = dict[str, Any]
# Made on entering, which gives what is to be told of it; undone on leaving, when more may have been added.
Fault = Callable[[Scene, random.Random], AbstractAsyncContextManager[Facts]]


class NotHere(Exception):
    """The fault cannot be made on this machine."""


@asynccontextmanager
async def kill_leader(scene: Scene, _: random.Random) -> AsyncIterator[Facts]:
    leading = await scene.leading()
    victim = leading[0] if leading else scene.servers[0]
    await victim.kill()
    facts: Facts = {"victim": victim.name}
    if leading:
        facts |= {"holder": leading[1], "epoch": leading[2], "died": True}
    victim.start()
    yield facts
    await scene.ready(scene.server_urls[scene.servers.index(victim)])


FAULTS: Final[Mapping[str, Fault]] = {
    "kill-leader": kill_leader,
}
