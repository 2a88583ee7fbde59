"""What waits too long at the keeper is had back, and nothing else is."""

from __future__ import annotations

import asyncio

from hetuflow_agent.processes.processes import Recalls

PATIENCE = 0.05


async def test_each_is_had_back_after_its_own_wait_unless_it_is_settled() -> None:
    recalls = Recalls(PATIENCE)
    loop = asyncio.get_running_loop()
    recalled: asyncio.Queue[tuple[str, float]] = asyncio.Queue()

    def expect(key: str) -> float:
        recalls.expect(key, lambda: recalled.put_nowait((key, loop.time())))
        return loop.time() + PATIENCE

    first_at = expect("first")
    expect("settled")
    recalls.settle("settled")
    recalls.settle("nobody")
    async with asyncio.timeout(30):
        first, at = await recalled.get()
        assert (first, at >= first_at - 0.01) == ("first", True)
        second_at = expect("second")
        expect("third")
        for wanted in ("second", "third"):
            key, at = await recalled.get()
            assert key == wanted
            assert at >= second_at - 0.01, "it has the whole of its time, whenever the others came"
    assert recalled.empty()


async def test_one_that_comes_while_another_waits_is_waited_for_too() -> None:
    recalls = Recalls(PATIENCE)
    recalled: asyncio.Queue[str] = asyncio.Queue()
    recalls.expect("first", lambda: recalled.put_nowait("first"))
    # Settled by the time the timer rings, which then has to be set for the other.
    recalls.settle("first")
    recalls.expect("second", lambda: recalled.put_nowait("second"))
    async with asyncio.timeout(30):
        assert await recalled.get() == "second"
