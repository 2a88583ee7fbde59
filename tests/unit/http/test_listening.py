"""The HTTP server waits to be told that it is to end, instead of looking all the time."""

from __future__ import annotations

import asyncio

import uvicorn

from hetuflow_server.http.listening import _Server


class Counting(_Server):
    ticks = 0

    async def on_tick(self, counter: int) -> bool:
        self.ticks += 1
        return await super().on_tick(counter)


async def test_it_ends_when_it_is_told_and_not_at_a_next_look() -> None:
    server = Counting(uvicorn.Config("none:none", date_header=True))
    serving = asyncio.create_task(server.main_loop())
    await asyncio.sleep(0)
    assert server.ticks == 1
    assert [name for name, _ in server.server_state.default_headers] == [b"date"]
    began = asyncio.get_running_loop().time()
    server.end()
    await serving
    assert server.ticks == 2
    assert asyncio.get_running_loop().time() - began < 1
