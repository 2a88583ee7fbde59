"""The waiting room keeps count as polls come and go; a brute-force walk over all of them agrees."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from uuid import UUID, uuid4

from hetuflow_core.placement import AgentFacts
from hetuflow_server.services.askers import Asker
from hetuflow_server.services.waiting_room import WaitingRoom


class Judge:
    """Agents fit a class when their label says so; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def fits(self, placement_id: int, facts: AgentFacts) -> bool:
        self.asked += 1
        return str(placement_id) in facts.labels


def an_asker(*served: int, free: int = 1, fits: tuple[int, ...] = (), prefetch: float = 0) -> Asker:
    facts = AgentFacts(agent_id=uuid4(), version=1, labels={str(one): "" for one in fits})
    return Asker(facts, uuid4(), uuid4(), frozenset(served), free, 10, timedelta(seconds=prefetch))


async def test_what_is_kept_is_what_a_walk_over_all_would_find() -> None:
    rng, judge = random.Random(3), Judge()
    room, inside = WaitingRoom(judge.fits), list[Asker]()
    for _ in range(600):
        if inside and rng.random() < 0.4:
            gone = inside.pop(rng.randrange(len(inside)))
            room.leave(gone)
            room.leave(gone)
        else:
            served = rng.sample(range(3), rng.randint(1, 3))
            fits = tuple(rng.sample(range(100), rng.randint(0, 60)))
            asker = an_asker(*served, free=rng.randint(0, 4), fits=fits, prefetch=rng.randint(0, 3))
            room.enter(asker)
            inside.append(asker)
        hungry = [asker for asker in inside if asker.free > 0]
        assert len(room) == len(inside)
        assert room.free == sum(asker.free for asker in hungry)
        assert room.prefetch == max((asker.prefetch for asker in hungry), default=timedelta(0))
        assert set(room.namespaces) == {one for asker in hungry for one in asker.served}
        namespace, placement = rng.randrange(3), rng.randrange(100)
        able = [a for a in hungry if namespace in a.served and str(placement) in a.facts.labels]
        assert list(room.takers(namespace, placement)) == able, "in the order they came"
        target = rng.choice(hungry).agent_id if hungry else UUID(int=0)
        bound = [asker for asker in able if asker.agent_id == target]
        assert list(room.takers(namespace, placement, target)) == bound


async def test_asking_again_about_a_class_asks_nobody_again() -> None:
    judge = Judge()
    room = WaitingRoom(judge.fits)
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
    room = WaitingRoom(judge.fits)
    for placement_id in range(1_000):
        room.takers(1, placement_id)
    room.enter(an_asker(1, fits=(999,)))
    assert judge.asked == 64
    assert len(room.takers(1, 999)) == 1


async def test_newcomers_are_new_until_a_round_has_looked() -> None:
    room = WaitingRoom(Judge().fits)
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
    room = WaitingRoom(Judge().fits)
    asker, another = an_asker(1), an_asker(1)
    again, other = (
        Asker(asker.facts, asker.session_id, request_id, asker.served, 1, 10, asker.prefetch)
        for request_id in (asker.request_id, uuid4())
    )
    another.request_id = asker.request_id
    room.enter(asker)
    assert room.earlier(again) is asker
    assert room.earlier(other) is None
    assert room.earlier(another) is None
    room.leave(asker)
    assert room.earlier(again) is None
