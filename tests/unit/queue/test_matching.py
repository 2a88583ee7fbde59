"""Who is dealt which row: the best suited and least loaded of a sample, however many wait."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, strategies as st

from hetuflow_core.placement import AgentFacts, Requirements, Resources, RunningJob, requirements_from
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.placement.classes import PlacementClass, PlacementClasses
from hetuflow_server.placement.suitability import Suitability
from hetuflow_server.queue.matching import Matcher
from hetuflow_server.queue.rows import Claimable
from hetuflow_server.queue.waiting_polls import WaitingPoll, WaitingPolls

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
SLOTS = 10
PLAIN, PICKY, LARGE, APART, ALSO_PLAIN = 1, 2, 3, 5, 6


class CountingSuitability(Suitability):
    """Counts how many were looked at."""

    looks = 0

    def score(self, placement_id: int, agent: AgentFacts) -> float:
        self.looks += 1
        return super().score(placement_id, agent)


class Room:
    def __init__(self) -> None:
        classes = PlacementClasses()
        preferred = [{"weight": 1, "key": "disk", "operator": "In", "values": ["ssd"]}]
        classes._known = {
            PLAIN: PlacementClass(Requirements()),
            ALSO_PLAIN: PlacementClass(Requirements()),
            PICKY: PlacementClass(requirements_from({"affinity": {"preferred": preferred}})),
            LARGE: PlacementClass(Requirements(resources=Resources(cpu=2))),
            APART: PlacementClass(requirements_from({"anti_affinity": {"required": [{"jobs": ["loud"]}]}})),
        }
        self.suitability = CountingSuitability(SystemClock(), classes)
        self.waiting = WaitingPolls(self.suitability.fits)
        self.matcher = Matcher(self.suitability, classes, self.waiting)

    def wait(self, *, free: int = SLOTS, resources: Resources | None = None, **facts: Any) -> WaitingPoll:
        about = AgentFacts(agent_id=uuid4(), version=1, slots=SLOTS, capacity=Resources(cpu=64), **facts)
        waiting_poll = WaitingPoll(about, uuid4(), uuid4(), frozenset({1}), free, SLOTS, timedelta(0))
        waiting_poll.free_resources = resources or Resources()
        waiting_poll.eligible = True
        self.waiting.add(waiting_poll)
        self.suitability.note([about])
        return waiting_poll

    def match(self, *rows: Claimable) -> list[WaitingPoll]:
        return [waiting_poll for _, waiting_poll in self.matcher.match(rows, NOW)]


def a_row(placement: int = PLAIN, *, due_in: float = -60, target: UUID | None = None) -> Claimable:
    due_at = NOW + timedelta(seconds=due_in)
    return Claimable(
        uuid4(), uuid4(), 1, placement, 500, due_at, None, target, uuid4(), 1, 1, due_at, 300_000, None
    )


@pytest.fixture
async def room() -> Room:
    return Room()


def least_loaded(waiting: list[WaitingPoll], hands: Counter[WaitingPoll]) -> WaitingPoll | None:
    """By the letter: of the first twenty with room the least loaded, of equals the first."""
    best: tuple[float, WaitingPoll] | None = None
    seen = 0
    for waiting_poll in waiting:
        if hands[waiting_poll] < waiting_poll.free:
            load = (SLOTS - waiting_poll.free + hands[waiting_poll]) / SLOTS
            if best is None or load < best[0]:
                best = load, waiting_poll
            seen += 1
            if seen == 20 or load == 0:
                break
    return best[1] if best else None


@given(
    frees=st.lists(st.integers(min_value=1, max_value=SLOTS), min_size=1, max_size=40),
    placements=st.lists(st.sampled_from([PLAIN, ALSO_PLAIN]), min_size=1, max_size=150),
)
async def test_rows_of_all_classes_that_ask_nothing_go_to_the_least_loaded(
    frees: list[int], placements: list[int]
) -> None:
    room = Room()
    waiting = [room.wait(free=free) for free in frees]
    hands: Counter[WaitingPoll] = Counter()
    expected = []
    for _ in placements:
        chosen = least_loaded(waiting, hands)
        if chosen is not None:
            expected.append(chosen)
            hands[chosen] += 1
    assert room.match(*map(a_row, placements)) == expected


async def test_who_takes_nothing_ahead_is_passed_over_for_what_is_not_due(room: Room) -> None:
    punctual, eager = room.wait(), room.wait(free=1)
    eager.prefetch = timedelta(seconds=2)
    due, soon, later = a_row(), a_row(due_in=1), a_row(due_in=1)
    assert room.match(soon, due, later) == [eager, punctual]


@pytest.mark.parametrize(("free", "looks"), [(SLOTS, 1), (SLOTS - 1, 20)])
async def test_a_row_costs_a_sample_however_many_wait(room: Room, free: int, looks: int) -> None:
    """Of idle ones the first will do; else twenty are compared."""
    waiting = [room.wait(free=free) for _ in range(500)]
    assert room.match(a_row()) == waiting[:1], "whoever came first, of equals"
    assert room.suitability.looks == looks


async def test_the_least_loaded_of_the_sample_is_chosen(room: Room) -> None:
    for _ in range(18):
        room.wait(free=2)
    best, _, beyond = room.wait(free=5), room.wait(free=4), room.wait(free=SLOTS)
    assert room.match(a_row()) == [best], "the one beyond the sample is not looked at"
    room.waiting.remove(best)
    assert room.match(a_row()) == [beyond]


async def test_rows_go_round_and_nobody_gets_more_than_was_asked_for(room: Room) -> None:
    waiting = [room.wait(free=2) for _ in range(30)]
    assigned = room.match(*(a_row() for _ in range(70)))
    assert {waiting_poll: assigned.count(waiting_poll) for waiting_poll in waiting} == dict.fromkeys(
        waiting, 2
    )


async def test_what_an_agent_was_dealt_counts_as_its_load(room: Room) -> None:
    """A batch is spread over those who wait, as if its rows had come one by one."""
    waiting = [room.wait(free=5) for _ in range(4)]
    busier = room.wait(free=3)
    assigned = room.match(*(a_row() for _ in range(10)))
    assert [assigned.count(waiting_poll) for waiting_poll in waiting] == [3, 3, 2, 2]
    assert busier not in assigned


async def test_one_that_suits_better_is_chosen_over_one_with_less_to_do(room: Room) -> None:
    room.wait(free=SLOTS)
    suits = room.wait(free=1, labels={"disk": "ssd"})
    assert room.match(a_row(PICKY)) == [suits]
    room.waiting.remove(suits)
    assert room.match(a_row(PICKY, due_in=-1)) == [], "the other lets it go first for a moment"
    assert len(room.match(a_row(PICKY, due_in=-60))) == 1


async def test_what_an_agent_was_dealt_counts_for_the_rest_of_the_batch(room: Room) -> None:
    small, large = room.wait(resources=Resources(cpu=3)), room.wait(resources=Resources(cpu=6))
    assigned = room.match(*(a_row(LARGE) for _ in range(9)))
    assert (assigned.count(small), assigned.count(large)) == (1, 3)


async def test_work_bound_to_an_agent_waits_for_that_one(room: Room) -> None:
    room.wait()
    bound = room.wait(free=1)
    assert room.match(a_row(target=bound.agent_id), a_row(target=uuid4())) == [bound]


async def test_whoever_work_is_bound_to_lets_no_better_one_go_first(room: Room) -> None:
    room.wait(labels={"disk": "ssd"})
    bound = room.wait(free=1)
    assert room.match(a_row(PICKY, due_in=-1, target=bound.agent_id)) == [bound]


async def test_nothing_goes_to_one_who_may_have_been_given_something_before(room: Room) -> None:
    waiting_poll = room.wait()
    waiting_poll.eligible = False
    assert room.match(a_row(), a_row(target=waiting_poll.agent_id)) == []


async def test_what_is_not_due_yet_goes_to_those_who_take_work_ahead(room: Room) -> None:
    room.wait()
    ahead = room.wait()
    ahead.prefetch = timedelta(seconds=2)
    assert room.match(a_row(due_in=1), a_row(due_in=3)) == [ahead]


async def test_no_more_is_looked_for_than_resources_go(room: Room) -> None:
    """What is locked beyond that could be given to nobody, and would keep from them what could."""
    room.wait(resources=Resources(cpu=5))
    room.wait(free=1, resources=Resources(cpu=9))
    room.wait(resources=Resources(cpu=1))
    demand = room.matcher.demand
    assert demand(BacklogEntry(1, LARGE, 500), 50) == 3
    assert demand(BacklogEntry(1, LARGE, 500), 2) == 2
    assert demand(BacklogEntry(1, PLAIN, 500), 50) == 50, "it may all be theirs"
    assert demand(BacklogEntry(2, PLAIN, 500), 50) == 0
    assert demand(BacklogEntry(1, 4, 500), 50) is None, "a class nobody has read yet"


async def test_nothing_is_looked_for_that_keeps_away_from_what_all_who_wait_have(room: Room) -> None:
    """It would be locked, dealt to nobody, and looked for again at once."""
    first, second = room.wait(free=2), room.wait(free=3)
    loud = [RunningJob("mine", "loud")]
    for one, other in ((first, second), (second, first)):
        one.running, other.running = {2: loud, 1: loud}, {2: loud, 1: [RunningJob("mine", "quiet")]}
        assert room.matcher.demand(BacklogEntry(1, APART, 500), 50) == other.free
    second.running = {1: loud}
    first.running = {1: loud}
    assert room.matcher.demand(BacklogEntry(1, APART, 500), 50) == 0
    assert room.matcher.demand(BacklogEntry(1, PLAIN, 500), 50) == 50
