"""Whose turn it is, and how much is taken ahead."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from hetuflow_agent.attempt.slots import Pace, Slots, Waits


class Crowd:
    def __init__(self, count: int) -> None:
        self.slots = Slots(count)
        self.called: list[UUID] = []

    def come(self, waits: Waits = Waits.HERE) -> UUID:
        token = uuid4()
        self.slots.enter(token, lambda: self.called.append(token), waits)
        return token


def test_whoever_comes_first_has_a_slot_and_the_others_are_called_in_order() -> None:
    crowd = Crowd(2)
    first, second, third, fourth = (crowd.come() for _ in range(4))
    assert crowd.called == [first, second]
    crowd.slots.leave(second)
    assert crowd.called == [first, second, third]
    assert [crowd.slots.holds(one) for one in (first, second, third, fourth)] == [True, False, True, False]


def test_who_leaves_the_line_is_not_called() -> None:
    crowd = Crowd(1)
    first, second, third = (crowd.come() for _ in range(3))
    crowd.slots.leave(second)
    crowd.slots.leave(first)
    crowd.slots.leave(first)
    assert crowd.called == [first, third]


def test_what_works_already_counts_even_beyond_the_slots() -> None:
    crowd = Crowd(1)
    adopted = [uuid4(), uuid4()]
    for one in adopted:
        crowd.slots.occupy(one)
    waiting = crowd.come()
    crowd.slots.leave(adopted[0])
    assert not crowd.slots.holds(waiting), "the other one still works"
    crowd.slots.leave(adopted[1])
    assert crowd.slots.holds(waiting)


def test_more_slots_are_there_at_once_and_fewer_end_nothing() -> None:
    crowd = Crowd(1)
    first, second = crowd.come(), crowd.come()
    crowd.slots.resize(2)
    assert crowd.called == [first, second]
    crowd.slots.resize(1)
    third = crowd.come()
    crowd.slots.leave(first)
    assert not crowd.slots.holds(third)


def paced(per_second: float, duration: float, lead: float) -> tuple[Pace, float]:
    pace, now = Pace(), 1_000.0
    for _ in range(200):
        pace.note_ready(lead)
    for n in range(int(per_second * 3)):
        now = 1_000.0 + n / per_second
        pace.note_end(now, duration)
    return pace, now


@pytest.mark.parametrize(
    ("per_second", "duration", "lead", "least", "most"),
    [
        (500, 0.010, 0.010, 10, 10),  # 10 ms to get one ready, and four end every 10 ms
        (1000, 0.002, 0.400, 256, 256),  # never more than this
        # Slots could do more than the machine does: what ends in the time it takes to get more, and a bit.
        (100, 0.002, 0.040, 20, 26),
        (500, 0.002, 0.200, 180, 200),
        (4, 1.0, 0.010, 0, 0),  # tasks of seconds: nothing waits here that could run elsewhere
        (100, 1.0, 0.010, 0, 0),
    ],
)
def test_as_much_is_taken_ahead_as_ends_while_more_is_made_ready(
    per_second: float, duration: float, lead: float, least: int, most: int
) -> None:
    pace, now = paced(per_second, duration, lead)
    assert least <= pace.ahead(now, slots=4) <= most


def test_a_pace_is_forgotten_when_nothing_ends() -> None:
    pace, now = paced(500, 0.002, 0.02)
    assert pace.ahead(now, slots=4) > 0
    assert pace.ahead(now + 3, slots=4) == 0


@pytest.mark.parametrize("before", [0, 2_000])
def test_a_burst_is_known_by_its_first_tenth_of_a_second(before: int) -> None:
    pace, now = Pace(), 1_000.0
    for n in range(before):
        now = 1_000.0 + n / 500
        pace.note_end(now, 0.002)
    began = now + 2.0
    for n in range(100):
        now = began + n / 1_000
        pace.note_end(now, 0.002)
    assert 800 < pace.per_second(now) < 1_200
    for n in range(100, 3_000):
        now = began + n / 1_000
        pace.note_end(now, 0.002)
    assert 900 < pace.per_second(now) < 1_100


def test_a_few_ends_at_once_are_no_burst() -> None:
    pace = Pace()
    for _ in range(4):
        pace.note_end(1_000.0, 0.002)
    assert pace.per_second(1_000.0) < 50
    slow = Pace()
    for _ in range(4):
        slow.note_end(1_000.0, 5.0)
    assert slow.per_second(1_000.0) < 10


def test_ends_that_come_now_and_then_are_told_as_such() -> None:
    pace, now = Pace(), 0.0
    for n in range(20):
        now = 1_000.0 + n
        pace.note_end(now, 0.01)
    assert pace.per_second(now + 1.0) < 1.5


def test_before_anything_has_ended_nothing_is_taken_ahead() -> None:
    assert Pace().ahead(5.0, slots=4) == 0


class TestWhereWorkWaits:
    """Commands may wait at the keeper, which counts them; of anything else it knows nothing."""

    def test_commands_are_handed_over_beyond_the_slots(self) -> None:
        crowd = Crowd(2)
        commands = [crowd.come(Waits.AT_KEEPER) for _ in range(5)]
        assert crowd.called == commands

    def test_work_of_our_own_waits_until_what_was_handed_over_leaves_it_a_slot(self) -> None:
        crowd = Crowd(2)
        commands = [crowd.come(Waits.AT_KEEPER) for _ in range(3)]
        own, behind = crowd.come(Waits.HERE), crowd.come(Waits.AT_KEEPER)
        assert crowd.called == commands
        crowd.slots.leave(commands[0])
        assert crowd.called == commands, "two of three may run, so no slot is free"
        crowd.slots.leave(commands[1])
        # One command and our own work fill both slots; nothing may wait at the keeper while it does not know.
        assert crowd.called == [*commands, own]
        crowd.slots.leave(own)
        assert crowd.called[-1] == behind

    def test_commands_are_handed_over_again_once_nothing_of_our_own_works(self) -> None:
        crowd = Crowd(1)
        own = crowd.come(Waits.HERE)
        commands = [crowd.come(Waits.AT_KEEPER) for _ in range(3)]
        assert crowd.called == [own]
        crowd.slots.leave(own)
        assert crowd.called == [own, *commands]

    def test_a_command_for_an_instant_has_a_slot_of_its_own(self) -> None:
        crowd = Crowd(2)
        now, later, last = (
            crowd.come(waits) for waits in (Waits.AT_KEEPER, Waits.HERE_FOR_KEEPER, Waits.HERE_FOR_KEEPER)
        )
        assert crowd.called == [now, later]
        crowd.slots.leave(now)
        assert crowd.called == [now, later, last]
        # The keeper counts them too: others may stand in line there behind them.
        ahead = crowd.come(Waits.AT_KEEPER)
        assert crowd.called[-1] == ahead
