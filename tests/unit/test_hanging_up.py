"""A poll whose caller hangs up is broken off in that moment: nothing may be dealt to it any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hetuflow_server.gateway.entrance import HungUp, WhileThere


class Caller:
    """Says nothing more, until it hangs up."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def _turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_wait_ends_as_soon_as_its_caller_is_gone() -> None:
    caller = Caller()

    async def serve() -> None:
        async with WhileThere(caller.receive):
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    await _turns()
    caller.gone.set()
    # No time passes in these: a server that looks only later deals to nobody meanwhile.
    await _turns()
    assert serving.done()
    with pytest.raises(HungUp):
        await serving


async def test_whoever_stays_is_answered() -> None:
    caller = Caller()
    async with WhileThere(caller.receive):
        await _turns()
    caller.gone.set()
    await _turns()
