"""What the poller asks, and when it asks again; answers are handed to it one by one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest

from hetuflow_agent.gateway_client import Session, Unanswered
from hetuflow_agent.poller import Poller
from hetuflow_core.errors import Denied
from hetuflow_core.messages import Cancel, Poll, Polled
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.loop import Timers
from tests.support.assignments import assignment_of


class Wire:
    """Gives the prepared answers in turn; without one it waits like a long-poll without work."""

    def __init__(self) -> None:
        self.asked: list[Poll] = []
        self.answers: list[Polled | Exception] = []
        self.waiting = asyncio.Event()

    async def poll(self, request: Poll) -> Polled:
        self.asked.append(request)
        if not self.answers:
            self.waiting.set()
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Slots:
    """As much of the runner as the poller sees."""

    def __init__(self) -> None:
        self.free = 2
        self.accepted: list[Any] = []
        self.cancelled: list[Any] = []
        self.freed: Callable[[], None] = lambda: None

    def free_slots(self) -> int:
        return self.free

    def accept(self, assignments: list[Any]) -> None:
        self.accepted += assignments

    def cancel(self, cancels: list[Any]) -> None:
        self.cancelled += cancels

    def on_slot_free(self, callback: Callable[[], None]) -> None:
        self.freed = callback


class Impatient(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return a


@pytest.fixture
async def timers() -> AsyncIterator[Timers]:
    timers = Timers(SystemClock())
    await timers.start()
    yield timers
    await timers.stop()


def poller_of(wire: Wire, slots: Slots, timers: Timers) -> Poller:
    session = Session(uuid4(), poll_wait_ms=30_000)
    return Poller(wire, session, slots, timers=timers, rng=Impatient())  # type: ignore[arg-type]  # stand-ins


async def test_assignments_and_cancels_reach_the_runner(timers: Timers) -> None:
    wire, slots = Wire(), Slots()
    assignment, cancel = assignment_of(["true"]), Cancel(uuid4(), uuid4())
    wire.answers = [Polled(0, [assignment], [cancel])]
    assert await poller_of(wire, slots, timers).run_once() == 1
    assert (slots.accepted, slots.cancelled) == ([assignment], [cancel])
    assert (wire.asked[0].free_slots, wire.asked[0].wait_ms) == (2, 30_000)


async def test_a_question_whose_answer_was_lost_is_repeated_unchanged(timers: Timers) -> None:
    wire, slots = Wire(), Slots()
    wire.answers = [Unanswered("gone"), Unanswered("gone"), Polled(0), Polled(0)]
    poller = poller_of(wire, slots, timers)
    assert await poller.run_once() == 0
    slots.free = 1
    for _ in range(3):
        await poller.run_once()
    first, second, third, fourth = wire.asked
    assert first == second == third
    assert fourth.request_id != first.request_id
    assert fourth.free_slots == 1


async def test_a_refused_question_is_not_repeated_but_asked_anew(timers: Timers) -> None:
    wire, slots = Wire(), Slots()
    wire.answers = [Denied("no"), Polled(0)]
    poller = poller_of(wire, slots, timers)
    await poller.run_once()
    await poller.run_once()
    assert wire.asked[0].request_id != wire.asked[1].request_id


async def test_without_a_slot_it_still_asks_and_breaks_off_when_one_is_free(timers: Timers) -> None:
    wire, slots = Wire(), Slots()
    slots.free = 0
    poller = poller_of(wire, slots, timers)
    asking = asyncio.create_task(poller.run_once())
    await wire.waiting.wait()
    assert wire.asked[0].free_slots == 0
    slots.free = 1
    slots.freed()
    assert await asyncio.wait_for(asking, 5) == 1
    wire.answers = [Polled(0)]
    await poller.run_once()
    assert wire.asked[1].free_slots == 1


async def test_a_question_that_may_bring_work_is_not_broken_off(timers: Timers) -> None:
    wire, slots = Wire(), Slots()
    poller = poller_of(wire, slots, timers)
    asking = asyncio.create_task(poller.run_once())
    await wire.waiting.wait()
    slots.free = 5
    slots.freed()
    done, _ = await asyncio.wait({asking}, timeout=0.05)
    assert not done
    asking.cancel()
    await asyncio.wait({asking})


async def test_stopping_ends_a_long_poll_at_once(timers: Timers) -> None:
    wire, slots = Wire(), Slots()
    poller = poller_of(wire, slots, timers)
    await poller.start()
    await wire.waiting.wait()
    await asyncio.wait_for(poller.stop(), 5)
