"""The waiting polls of a server: what is kept about all of them is what iterating over all would find."""

from __future__ import annotations

import random
from datetime import timedelta
from uuid import UUID, uuid4

from hetuflow_core.placement import AgentFacts
from hetuflow_server.queue.waiting_polls import WaitingPoll, WaitingPolls


class Judge:
    """Agents fit a class when their label says so; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def fits(self, placement_id: int, facts: AgentFacts) -> bool:
        self.asked += 1
        return str(placement_id) in facts.labels


def a_poll(*served: int, free: int = 1, fits: tuple[int, ...] = (), prefetch: float = 0) -> WaitingPoll:
    facts = AgentFacts(agent_id=uuid4(), version=1, labels={str(one): "" for one in fits})
    return WaitingPoll(facts, uuid4(), uuid4(), frozenset(served), free, 10, timedelta(seconds=prefetch))


async def test_what_is_kept_is_what_iterating_over_all_polls_would_find() -> None:
    rng, judge = random.Random(3), Judge()
    polls, inside = WaitingPolls(judge.fits), list[WaitingPoll]()
    for _ in range(600):
        if inside and rng.random() < 0.4:
            gone = inside.pop(rng.randrange(len(inside)))
            polls.remove(gone)
            polls.remove(gone)
        else:
            served = rng.sample(range(3), rng.randint(1, 3))
            fits = tuple(rng.sample(range(100), rng.randint(0, 60)))
            waiting_poll = a_poll(*served, free=rng.randint(0, 4), fits=fits, prefetch=rng.randint(0, 3))
            polls.add(waiting_poll)
            inside.append(waiting_poll)
        free = [waiting_poll for waiting_poll in inside if waiting_poll.free > 0]
        assert len(polls) == len(inside)
        assert polls.free == sum(waiting_poll.free for waiting_poll in free)
        assert polls.prefetch == max((waiting_poll.prefetch for waiting_poll in free), default=timedelta(0))
        assert set(polls.namespaces) == {one for waiting_poll in free for one in waiting_poll.served}
        namespace, placement = rng.randrange(3), rng.randrange(100)
        able = [a for a in free if namespace in a.served and str(placement) in a.facts.labels]
        assert list(polls.suitable(namespace, placement)) == able, "in the order they came"
        target = rng.choice(free).agent_id if free else UUID(int=0)
        bound = [waiting_poll for waiting_poll in able if waiting_poll.agent_id == target]
        assert list(polls.suitable(namespace, placement, target)) == bound


async def test_each_poll_is_checked_once_for_a_class() -> None:
    judge = Judge()
    polls = WaitingPolls(judge.fits)
    for _ in range(1_000):
        polls.add(a_poll(1, fits=(7,)))
    polls.suitable(1, 7)
    polls.suitable(1, 8)
    asked = judge.asked
    for _ in range(50):
        assert len(polls.suitable(1, 7)) == 1_000
        assert len(polls.suitable(1, 8)) == 0
    assert judge.asked == asked == 2_000
    polls.add(a_poll(1, fits=(7,)))
    assert judge.asked == asked + 2, "a new poll is checked for the two known classes, and no other poll is"


async def test_only_the_classes_used_lately_are_kept() -> None:
    """Otherwise each new poll would be checked for all classes there ever were."""
    judge = Judge()
    polls = WaitingPolls(judge.fits)
    for placement_id in range(1_000):
        polls.suitable(1, placement_id)
    polls.add(a_poll(1, fits=(999,)))
    assert judge.asked == 64
    assert len(polls.suitable(1, 999)) == 1


async def test_polls_are_new_until_a_round_has_considered_them() -> None:
    polls = WaitingPolls(Judge().fits)
    first, second = a_poll(1), a_poll(1, free=0)
    polls.add(first)
    considered = polls.new_polls()
    polls.add(second)
    polls.note_round(considered, 0.0)
    assert (first.new, second.new) == (False, True)
    assert polls.new_polls() == [second]
    polls.remove(second)
    assert polls.new_polls() == []


async def test_only_the_same_request_of_the_same_agent_is_superseded() -> None:
    """An agent may have several polls, and requests of two agents may have the same id."""
    polls = WaitingPolls(Judge().fits)
    waiting_poll, another = a_poll(1), a_poll(1)
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
    polls.add(waiting_poll)
    polls.supersede(other)
    polls.supersede(another)
    assert list(polls) == [waiting_poll]
    assert not waiting_poll.answer.done()
    polls.supersede(again)
    assert list(polls) == []
    assert waiting_poll.assigned == []
    assert waiting_poll.answer.done()


async def test_a_repeated_poll_is_checked_for_earlier_reservations_at_once_and_once_more() -> None:
    polls = WaitingPolls(Judge().fits)
    repeated, first = a_poll(1), a_poll(1)
    first.repeated = False
    for poll in (repeated, first):
        polls.add(poll)
    polls.check_again(repeated, 5.0)
    new = polls.new_polls()
    assert polls.to_check(new, 1.0) == [repeated]
    polls.note_round(new, 1.0)
    assert polls.next_check == 5.0
    assert polls.to_check([], 4.9) == []
    assert polls.to_check([], 5.0) == [repeated]
    polls.note_round([], 5.0)
    assert polls.next_check is None


async def test_a_poll_that_was_answered_is_not_checked_again() -> None:
    polls = WaitingPolls(Judge().fits)
    poll = a_poll(1)
    polls.add(poll)
    polls.check_again(poll, 5.0)
    polls.note_round(polls.new_polls(), 1.0)
    poll.assign([])
    assert polls.to_check([], 5.0) == []


async def test_polls_are_answered_when_the_server_stops_and_afterwards() -> None:
    polls = WaitingPolls(Judge().fits)
    waiting, late = a_poll(1), a_poll(1)
    polls.add(waiting)
    polls.close()
    polls.add(late)
    assert list(polls) == []
    assert all(poll.answer.done() and poll.assigned == [] for poll in (waiting, late))


async def test_a_new_poll_that_ends_has_its_first_round() -> None:
    polls = WaitingPolls(Judge().fits)
    poll = a_poll(1)
    polls.add(poll)
    poll.end()
    assert not poll.answer.done()
    polls.note_round(polls.new_polls(), 0.0)
    assert poll.answer.done()
    assert poll.assigned == []
