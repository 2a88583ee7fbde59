"""Coalescing: what arrives while a batch is under way shares the next one; faults stay with their owner."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_server.postgres.coalescing import Coalescer, Gathering


class Desk:
    """Answers n with 10 n, refuses 13, and can be held up."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def serve(self, batch: Sequence[int]) -> list[int]:
        self.batches.append(list(batch))
        await self.open.wait()
        if 13 in batch:
            raise ValueError("thirteen")
        return [10 * number for number in batch]


async def test_an_idle_desk_answers_at_once() -> None:
    desk = Desk()
    line = Coalescer("desk", desk.serve, most=10, weigh=lambda _: 1)
    assert [await line.ask(1), await line.ask(2)] == [10, 20]
    assert desk.batches == [[1], [2]]


async def test_what_comes_meanwhile_shares_the_next_batch_up_to_its_weight() -> None:
    desk = Desk()
    desk.open.clear()
    line = Coalescer("desk", desk.serve, most=3, weigh=lambda number: number)
    first = asyncio.create_task(line.ask(1))
    await asyncio.sleep(0)
    others = [asyncio.create_task(line.ask(n)) for n in (1, 2, 1, 9, 1)]
    await asyncio.sleep(0)
    desk.open.set()
    assert await asyncio.gather(first, *others) == [10, 10, 20, 10, 90, 10]
    assert desk.batches == [[1], [1, 2], [1], [9], [1]]


async def test_a_bad_request_fails_alone() -> None:
    desk = Desk()
    desk.open.clear()
    line = Coalescer("desk", desk.serve, most=10, weigh=lambda _: 1)
    asking = [asyncio.create_task(line.ask(n)) for n in (1, 2, 13, 3)]
    await asyncio.sleep(0)
    desk.open.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert [answers[0], answers[1], answers[3]] == [10, 20, 30]
    assert isinstance(answers[2], ValueError)
    assert await line.ask(4) == 40


async def test_who_has_gone_is_not_served() -> None:
    desk = Desk()
    desk.open.clear()
    line = Coalescer("desk", desk.serve, most=10, weigh=lambda _: 1)
    first = asyncio.create_task(line.ask(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gone, last = (asyncio.create_task(line.ask(n)) for n in (2, 3))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    desk.open.set()
    assert (await first, await last) == (10, 30)
    assert desk.batches == [[1], [3]]
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_who_goes_while_it_is_served_keeps_nobody_from_the_answer() -> None:
    desk = Desk()
    desk.open.clear()
    line = Coalescer("desk", desk.serve, most=10, weigh=lambda _: 1)
    gone, stays = (asyncio.create_task(line.ask(n)) for n in (1, 2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert desk.batches == [[1, 2]]
    gone.cancel()
    await asyncio.sleep(0)
    desk.open.set()
    assert await asyncio.wait_for(stays, 10) == 20
    assert await asyncio.wait_for(line.ask(3), 10) == 30


class Faulty(Desk):
    """Fails with these, one after the other, before it serves."""

    def __init__(self, *faults: Exception) -> None:
        super().__init__()
        self.faults = list(faults)

    async def serve(self, batch: Sequence[int]) -> list[int]:
        answers = await super().serve(batch)
        if self.faults:
            raise self.faults.pop(0)
        return answers


def is_lost(error: Exception) -> bool:
    return isinstance(error, TimeoutError)


async def test_what_may_succeed_next_time_is_tried_again_by_itself_and_not_for_ever() -> None:
    twice = Faulty(TimeoutError(), TimeoutError())
    assert await Coalescer("desk", twice.serve, most=10, weigh=lambda _: 1, again=is_lost).ask(1) == 10
    thrice = Faulty(*[TimeoutError() for _ in range(3)])
    line = Coalescer("desk", thrice.serve, most=10, weigh=lambda _: 1, again=is_lost)
    with pytest.raises(TimeoutError):
        await line.ask(1)
    assert thrice.batches == [[1]] * 3
    other = Faulty(KeyError())
    with pytest.raises(KeyError):
        await Coalescer("desk", other.serve, most=10, weigh=lambda _: 1, again=is_lost).ask(1)
    assert other.batches == [[1]]


async def test_without_a_database_all_are_told_so_at_once() -> None:
    """Each of them would wait for the same answer."""
    desk = Faulty(DatabaseUnreachable("planted"))
    line = Coalescer("desk", desk.serve, most=10, weigh=lambda _: 1, again=lambda _: True)
    asking = [asyncio.create_task(line.ask(n)) for n in (1, 2, 3)]
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(answer, DatabaseUnreachable) for answer in answers)
    assert desk.batches == [[1, 2, 3]]
    assert await line.ask(4) == 40


@pytest.mark.parametrize(
    ("requests", "took", "rest", "pause"),
    [
        # Whoever comes alone does not wait, nor does the next.
        (1, 0.003, 0.0, 0.0),
        (0, 0.003, 0.0, 0.0),
        # Half as long as the one before, and never for long.
        (2, 0.003, 0.0, 0.0015),
        (40, 0.5, 0.001, 0.002),
        # What was shared a while ago tells nothing of now.
        (40, 0.5, 0.02, 0.0),
    ],
)
def test_a_transaction_waits_for_others_only_if_the_last_was_shared(
    requests: int, took: float, rest: float, pause: float
) -> None:
    gathering = Gathering()
    assert gathering.pause(100.0) == 0.0
    gathering.note(requests, 100.0, 100.0 + took)
    assert gathering.pause(100.0 + took + rest) == pytest.approx(pause)
