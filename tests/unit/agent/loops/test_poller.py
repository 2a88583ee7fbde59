"""What the poller asks, and when it asks again; answers are handed to it one by one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from msgspec import structs

from hetuflow_agent.gateway import Session, Unanswered
from hetuflow_agent.loops.poller import Poller
from hetuflow_core.agent.commands import CommandKind
from hetuflow_core.errors import Denied
from hetuflow_core.messages import Cancel, Command, Poll, Polled
from hetuflow_core.placement import Resources, RunningJob
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.timers import Timers
from tests.support.agent.assignments import assignment_of


class Wire:
    """Gives the prepared answers in turn; without one it waits like a long-poll without work."""

    def __init__(self) -> None:
        self.asked: list[Poll] = []
        self.answers: list[Polled | Exception] = []
        self.waiting = asyncio.Event()
        self.commanded: list[Command] = []

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
        self.ahead = 0
        self.expected = 0
        self.full = False
        self.recording = False
        self.resources = Resources()
        self.running: list[RunningJob] = []
        self.accepted: list[Any] = []
        self.cancelled: list[Any] = []
        self.freed: Callable[[], None] = lambda: None

    def blocked(self) -> bool:
        return self.full

    def free_slots(self) -> int:
        return 0 if self.full else self.free

    def wanted(self) -> int:
        return 0 if self.full else max(0, self.free + self.ahead - self.expected)

    def free_resources(self) -> Resources:
        return self.resources

    def running_jobs(self) -> list[RunningJob]:
        return self.running

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


def poller_of(wire: Wire, slots: Slots, timers: Timers, check_every: float = 60.0) -> Poller:
    return Poller(
        wire,  # type: ignore[arg-type]  # a stand-in
        Session(uuid4(), poll_wait_ms=30_000),
        slots,  # type: ignore[arg-type]  # a stand-in
        on_commands=wire.commanded.extend,
        timers=timers,
        rng=Impatient(),
        check_every=check_every,
    )


async def test_assignments_and_cancels_reach_the_runner(timers: Timers) -> None:
    wire, slots = Wire(), Slots()
    assignment, cancel = assignment_of(["true"]), Cancel(uuid4(), uuid4())
    wire.answers = [Polled(0, [assignment], [cancel])]
    assert await poller_of(wire, slots, timers).run_once() == 1
    assert (slots.accepted, slots.cancelled) == ([assignment], [cancel])
    assert (wire.asked[0].free_slots, wire.asked[0].wait_ms) == (2, 30_000)


async def test_a_disk_that_fills_up_takes_the_question_back(timers: Timers) -> None:
    """Nobody tells of it; and what was given in that very moment is asked for again, under the same id."""
    wire, slots = Wire(), Slots()
    poller = poller_of(wire, slots, timers, check_every=0.01)
    async with asyncio.timeout(30):
        asking = asyncio.create_task(poller.run_once())
        await wire.waiting.wait()
        slots.full = True
        assert await asking == 1
        wire.answers = [Polled(0, [], [])]
        await poller.run_once()
    first, second = wire.asked
    assert (first.free_slots, second.free_slots, second.repeated) == (2, 0, True)
    assert (second.request_id, second.wait_ms) == (first.request_id, 2_000)


async def test_a_question_whose_answer_was_lost_is_repeated_and_says_so(timers: Timers) -> None:
    wire, slots = Wire(), Slots()
    wire.answers = [Unanswered("gone"), Unanswered("gone"), Polled(0), Polled(0)]
    poller = poller_of(wire, slots, timers)
    assert await poller.run_once() == 0
    slots.free = 1
    for _ in range(3):
        await poller.run_once()
    first, second, third, fourth = wire.asked
    assert second == third == structs.replace(first, repeated=True)
    assert not first.repeated
    assert not fourth.repeated
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


async def test_commands_are_handed_on(timers: Timers) -> None:
    wire, slots = Wire(), Slots()
    command = Command(uuid4(), CommandKind.DRAIN)
    wire.answers = [Polled(0, commands=[command])]
    await poller_of(wire, slots, timers).run_once()
    assert wire.commanded == [command]


async def test_reports_take_a_question_along_that_asks_for_the_rest(timers: Timers) -> None:
    wire, slots = Wire(), Slots()
    slots.free, slots.ahead = 2, 3
    poller = poller_of(wire, slots, timers)
    asked = poller.attached_poll()
    assert asked is not None
    assert (asked.free_slots, asked.wait_ms, asked.prefetch_ms) == (5, 0, 0), (
        "nothing for later, it would wait"
    )
    assert poller.attached_poll() is None, "all of it is asked for"
    assignment = assignment_of(["true"])
    poller.on_attached_answer(asked, Polled(0, [assignment]))
    assert (slots.accepted, slots.expected) == ([assignment], 0)
    slots.ahead = 0
    within = poller.attached_poll()
    assert within is not None
    assert (within.free_slots, within.prefetch_ms) == (2, 2_000)


async def test_a_question_that_was_lost_with_reports_is_repeated_on_its_own(timers: Timers) -> None:
    wire, slots = Wire(), Slots()
    poller = poller_of(wire, slots, timers)
    asked = poller.attached_poll()
    assert asked is not None
    poller.on_attached_answer(asked, None)
    wire.answers = [Polled(0)]
    await poller.run_once()
    assert wire.asked == [structs.replace(asked, repeated=True)]
    assert slots.expected == 0


async def test_each_of_several_lost_questions_is_answered(timers: Timers) -> None:
    """Starts and results travel apart, and an outage takes the answers of both."""
    wire, slots = Wire(), Slots()
    slots.free = 1
    poller = poller_of(wire, slots, timers)
    first = poller.attached_poll()
    slots.free = 2
    second = poller.attached_poll()
    assert first is not None
    assert second is not None
    poller.on_attached_answer(first, None)
    poller.on_attached_answer(second, None)
    given = [assignment_of(["true"]) for _ in range(2)]
    wire.answers = [Polled(0, [one]) for one in given]
    await poller.run_once()
    await poller.run_once()
    assert {one.request_id for one in wire.asked} == {first.request_id, second.request_id}
    assert slots.accepted == given


async def test_a_broken_off_question_is_asked_until_it_is_answered(timers: Timers) -> None:
    """Whatever is asked in between, and though it was broken off once more without a free slot."""
    wire, slots = Wire(), Slots()
    slots.running = [RunningJob("default", "x", {})]
    poller = poller_of(wire, slots, timers)

    async def break_off(*, running: list[RunningJob], free: int) -> None:
        wire.waiting.clear()
        asking = asyncio.create_task(poller.run_once())
        await wire.waiting.wait()
        slots.running, slots.free = running, free
        slots.freed()
        assert await asking == 1

    along = poller.attached_poll()
    assert along is not None
    slots.expected = 0
    await break_off(running=[], free=0)
    slots.expected = along.free_slots
    poller.on_attached_answer(along, None)
    wire.answers = [Polled(0)]
    await poller.run_once()
    await break_off(running=[], free=2)
    wire.answers = [Polled(0), Polled(0)]
    await poller.run_once()
    await poller.run_once()
    broken_off, lost, without_slot, again, new = [one.request_id for one in wire.asked]
    assert broken_off == without_slot == again
    assert len({broken_off, lost, new}) == 3


@dataclass
class Reporting:
    busy: bool


async def test_while_reports_go_nothing_is_asked_for_beside_them(timers: Timers) -> None:
    """An empty question goes out after a moment all the same: cancels and commands come that way."""
    wire, slots = Wire(), Slots()
    reports = Reporting(busy=True)
    poller = Poller(
        wire,  # type: ignore[arg-type]  # stand-ins
        Session(uuid4(), poll_wait_ms=30_000),
        slots,  # type: ignore[arg-type]
        on_commands=wire.commanded.extend,
        reports=reports,
        timers=timers,
        rng=Impatient(),
    )
    slots.expected = 2
    asking = asyncio.create_task(poller.run_once())
    await wire.waiting.wait()
    assert wire.asked[0].free_slots == 0
    slots.expected = 0
    slots.freed()
    await asyncio.sleep(0)
    assert not asking.done()
    reports.busy = False
    poller.note_idle()
    assert await asking == 1, "broken off: now it is this one's to ask"


async def test_agents_that_wait_together_do_not_come_back_together(timers: Timers) -> None:
    """Each draws for itself how long it waits, and how long it pauses when it is sent home early."""
    wire, slots = Wire(), Slots()
    wire.answers = [Polled(0) for _ in range(20)]
    drawn: list[float] = []

    class Drawing(random.Random):
        def uniform(self, a: float, b: float) -> float:
            drawn.append(b)
            return a if b == 1.0 else super().uniform(a, b)

    session = Session(uuid4(), poll_wait_ms=30_000)
    poller = Poller(  # type: ignore[arg-type]  # stand-ins
        wire, session, slots, on_commands=wire.commanded.extend, timers=timers, rng=Drawing(7)
    )
    for _ in range(20):
        await poller.run_once()
    waits = {request.wait_ms for request in wire.asked}
    assert len(waits) > 15
    assert all(22_500 <= wait <= 30_000 for wait in waits)
    assert drawn.count(1.0) == 20, "sent home at once, each paused"


async def test_a_question_asked_with_less_is_asked_again_under_the_same_id(timers: Timers) -> None:
    """A task that needs what has just become free must not wait for the end of a long poll."""
    wire, slots = Wire(), Slots()
    slots.resources = Resources(cpu=1, memory=512)
    poller = poller_of(wire, slots, timers)
    asking = asyncio.create_task(poller.run_once())
    await wire.waiting.wait()
    slots.resources = Resources(cpu=1, memory=256)
    slots.freed()
    await asyncio.sleep(0)
    assert not asking.done(), "less is no reason"
    slots.resources = Resources(cpu=3, memory=256)
    slots.freed()
    assert await asking == 1
    wire.answers = [Polled(0), Polled(0)]
    await poller.run_once()
    await poller.run_once()
    first, again, other = wire.asked
    assert (again.request_id, again.repeated, again.free_resources) == (
        first.request_id,
        True,
        slots.resources,
    )
    assert (other.request_id != first.request_id, other.repeated) == (True, False)


async def test_a_question_that_names_a_job_which_has_ended_is_asked_again(timers: Timers) -> None:
    """Work that does not want to be beside that job may come now."""
    wire, slots = Wire(), Slots()
    web, other = RunningJob("default", "web"), RunningJob("default", "other")
    slots.running = [web]
    poller = poller_of(wire, slots, timers)
    asking = asyncio.create_task(poller.run_once())
    await wire.waiting.wait()
    slots.running = [web, other]
    slots.freed()
    await asyncio.sleep(0)
    assert not asking.done(), "one more is no reason"
    slots.running = [other]
    slots.freed()
    assert await asking == 1
    wire.answers = [Polled(0)]
    await poller.run_once()
    assert [one.running for one in wire.asked] == [[web], [other]]
