"""What is waited for so that a fault is felt: that its victim is at work, and that it has suffered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from hetuflow_selftest.history import Record, boottime
from hetuflow_selftest.scene import database
from hetuflow_selftest.scene.processes import Program
from hetuflow_selftest.scene.scene import Scene

# Not for ever: what never shows is for the judge to say.
_LONGEST_WAIT: Final = 45.0
_LOOK_EVERY: Final = 0.2
# So long a server may be heard of by nobody before agents are made to look for others.
_UNHEARD_SECONDS: Final = 2.0
# Whoever has written as a leader so lately is at it.
_AT_WORK_SECONDS: Final = 2.0
_OK: Final = 200
# Seconds that no slow line explains.
_OFF: Final = 15
# How many things others have to begin each, while the victim begins none, for it to have stopped.
_STARTS_OF_OTHERS: Final = 7


async def until(sign: Callable[[], Awaitable[bool]]) -> bool:
    deadline = boottime() + _LONGEST_WAIT
    while boottime() < deadline:
        if await sign():
            return True
        await asyncio.sleep(_LOOK_EVERY)
    return False


async def busy_agent(scene: Scene, lots: random.Random) -> Program:
    """One that runs something just now, whatever the lots say if none does for long."""
    busy: list[Program] = []

    async def some_are() -> bool:
        busy[:] = [agent for agent in scene.agents if agent.running and scene.runs_tasks(agent)]
        return bool(busy)

    await until(some_are)
    return lots.choice(busy or scene.agents)


async def used_server(scene: Scene, lots: random.Random, among: Sequence[Program]) -> Program:
    """The one the lots fall on, once an agent is heard to speak to it."""
    victim = lots.choice(among)
    number = scene.servers.index(victim) + 1
    ear = scene.listen()
    patience = boottime() + _UNHEARD_SECONDS

    async def heard() -> bool:
        nonlocal patience
        if any(record["server"] == number for record in _exchanges(ear.more())):
            return True
        if boottime() > patience:
            # All may have settled on the others, and stay there.
            patience = boottime() + _UNHEARD_SECONDS
            for agent in scene.agents:
                await scene.lines.shed(agent.name)
        return False

    await until(heard)
    return victim


async def leader_at_work(scene: Scene) -> None:
    """Wait until one makes fires: what is due next is due while the fault is there."""

    async def it_wrote() -> bool:
        return await database.leader_wrote(scene.database_url, _AT_WORK_SECONDS)

    await until(it_wrote)


async def another_leads(scene: Scene, epoch: int) -> None:
    """Wait until there is a later term."""

    async def it_does() -> bool:
        leading = await scene.leading()
        return leading is not None and leading[2] > epoch

    await until(it_does)


async def generated(scene: Scene, after_epoch: int) -> None:
    """Wait until a leader of a later term has made fires."""

    async def fires_were_made() -> bool:
        return await database.generated_after(scene.database_url, after_epoch)

    await until(fires_were_made)


async def given_up(scene: Scene, agent: Program, since: float) -> None:
    """Wait until something it ran then is declared lost."""

    async def lost() -> bool:
        return await database.lost_since(scene.database_url, agent.name, since)

    await until(lost)


class Hearing:
    """Listens to agents and servers from now on, until what was done to them can be heard."""

    def __init__(self, scene: Scene) -> None:
        self._ear = scene.listen()
        self._heard: list[Record] = []

    async def a_wrong_clock(self, agent: str) -> None:
        await self._until(
            lambda heard: any(
                record["link"] == agent and abs(record.get("agent_off", 0)) > _OFF for record in heard
            )
        )

    async def a_lost_finish(self) -> None:
        """That was done, and whose answer nobody got."""
        await self._until(
            lambda heard: any(
                one["type"] == "finish" and one["outcome"] == "ok"
                for record in heard
                if not record["passed"] and record["status"] == _OK
                for one in record.get("reports", ())
            )
        )

    async def a_start(self, agent: str) -> None:
        await self._until(lambda heard: bool(_starts(heard, agent)))

    async def none_but_others_starting(self, agent: str, others: Sequence[str]) -> None:
        def others_have(heard: list[Record]) -> bool:
            last = max(_starts(heard, agent), default=0.0)
            starts = [at for one in others for at in _starts(heard, one) if at > last]
            return len(starts) >= _STARTS_OF_OTHERS * len(others)

        await self._until(others_have)

    async def _until(self, told: Callable[[list[Record]], bool]) -> None:
        async def sign() -> bool:
            self._heard += _exchanges(self._ear.more())
            return told(self._heard)

        await until(sign)


def _exchanges(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record["kind"] == "exchange"]


def _starts(heard: Sequence[Record], agent: str) -> list[float]:
    """When it said that it had begun something, and was believed."""
    return [
        record["at"]
        for record in heard
        if record["link"] == agent
        for one in record.get("reports", ())
        if one["type"] == "start" and one["outcome"] == "ok"
    ]
