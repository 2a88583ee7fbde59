"""The waiting room keeps count as polls come and go; a brute-force walk over all of them agrees."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from uuid import UUID, uuid4

from hetuflow_core.placement import AgentFacts
from hetuflow_server.queue.waiting_poll import WaitingPoll
from hetuflow_server.queue.waiting_polls import WaitingPolls


class Judge:
    """Agents fit a class when their label says so; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def fits(self, placement_id: int, facts: AgentFacts) -> bool:
        self.asked += 1
        return str(placement_id) in facts.labels


def an_asker(*served: int, free: int = 1, fits: tuple[int, ...] = (), prefetch: float = 0) -> WaitingPoll:
    facts = AgentFacts(agent_id=uuid4(), version=1, labels={str(one): "" for one in fits})
    return WaitingPoll(facts, uuid4(), uuid4(), frozenset(served), free, 10, timedelta(seconds=prefetch))


async def test_what_is_kept_is_what_a_walk_over_all_would_find() -> None:
    rng, judge = random.Random(3), Judge()
    room, inside = WaitingPolls(judge.fits), list[WaitingPoll]()
    for _ in range(600):
        if inside and rng.random() < 0.4:
            gone = inside.pop(rng.randrange(len(inside)))
            room.leave(gone)
            room.leave(gone)
        else:
            served = rng.sample(range(3), rng.randint(1, 3))
            fits = tuple(rng.sample(range(100), rng.randint(0, 60)))
            waiting_poll = an_asker(*served, free=rng.randint(0, 4), fits=fits, prefetch=rng.randint(0, 3))
            room.enter(waiting_poll)
            inside.append(waiting_poll)
        hungry = [waiting_poll for waiting_poll in inside if waiting_poll.free > 0]
        assert len(room) == len(inside)
        assert room.free == sum(waiting_poll.free for waiting_poll in hungry)
        assert room.prefetch == max((waiting_poll.prefetch for waiting_poll in hungry), default=timedelta(0))
        assert set(room.namespaces) == {one for waiting_poll in hungry for one in waiting_poll.served}
        namespace, placement = rng.randrange(3), rng.randrange(100)
        able = [a for a in hungry if namespace in a.served and str(placement) in a.facts.labels]
        assert list(room.takers(namespace, placement)) == able, "in the order they came"
        target = rng.choice(hungry).agent_id if hungry else UUID(int=0)
        bound = [waiting_poll for waiting_poll in able if waiting_poll.agent_id == target]
        assert list(room.takers(namespace, placement, target)) == bound


async def test_asking_again_about_a_class_asks_nobody_again() -> None:
    judge = Judge()
    room = WaitingPolls(judge.fits)
    for _ in range(1_000):
        room.enter(an_asker(1, fits=(7,)))
    room.takers(1, 7)
    room.takers(1, 8)
    asked = judge.asked
    for _ in range(50):
        assert len(room.takers(1, 7)) == 1_000
        assert len(room.takers(1, 8)) == 0
    assert judge.asked == asked == 2_000
    room.enter(an_asker(1, fits=(7,)))
    assert judge.asked == asked + 2, "one who comes is judged for the classes that are known, and nobody else"


async def test_only_the_classes_met_lately_are_kept() -> None:
    """Or whoever comes would be judged for all there ever were."""
    judge = Judge()
    room = WaitingPolls(judge.fits)
    for placement_id in range(1_000):
        room.takers(1, placement_id)
    room.enter(an_asker(1, fits=(999,)))
    assert judge.asked == 64
    assert len(room.takers(1, 999)) == 1


async def test_newcomers_are_new_until_a_round_has_looked() -> None:
    room = WaitingPolls(Judge().fits)
    first, second = an_asker(1), an_asker(1, free=0)
    room.enter(first)
    looked = room.newcomers()
    room.enter(second)
    room.note_look(looked)
    assert (first.new, second.new) == (False, True)
    assert room.newcomers() == [second]
    room.leave(second)
    assert room.newcomers() == []
    await asyncio.sleep(0)


async def test_the_same_request_of_the_same_agent_is_known_again_and_no_other() -> None:
    """An agent may have several under way, and requests of two agents may have the same id."""
    room = WaitingPolls(Judge().fits)
    waiting_poll, another = an_asker(1), an_asker(1)
    again, other = (
        WaitingPoll(
            waiting_poll.facts,
            waiting_poll.session_id,
            request_id,
            waiting_poll.served,
            1,
            10,
            waiting_poll.prefetch,
        )
        for request_id in (waiting_poll.request_id, uuid4())
    )
    another.request_id = waiting_poll.request_id
    room.enter(waiting_poll)
    assert room.earlier(again) is waiting_poll
    assert room.earlier(other) is None
    assert room.earlier(another) is None
    room.leave(waiting_poll)
    assert room.earlier(again) is None
