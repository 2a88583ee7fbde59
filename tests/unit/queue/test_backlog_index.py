"""Picking heads: in order, in turn, and without going through those that nobody may take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given, settings, strategies as st

from hetuflow_server.queue.backlog_index import BacklogIndex
from hetuflow_server.queue.fairness import Head

AGENT = UUID(int=7)
NOON, MINUTE = datetime(2026, 3, 1, 12, tzinfo=UTC), timedelta(minutes=1)


def index_of(*heads: Head) -> BacklogIndex:
    index = BacklogIndex()
    index.replace(heads)
    return index


def all_of(head: Head) -> int:
    return 5


def test_the_highest_priority_comes_first_and_no_more_than_asked_for() -> None:
    heads = [Head(1, placement, priority) for placement in (1, 2) for priority in (100, 900, 500)]
    picked = index_of(*heads, Head(2, 1, 1)).pick({1, 3}, 3, all_of)
    assert [head.priority for head in picked] == [900, 900, 500]
    assert set(picked.values()) == {5}


def test_heads_of_one_priority_take_turns() -> None:
    index = index_of(*[Head(1, placement, 500) for placement in range(10)])
    seen = []
    for _ in range(5):
        picked = list(index.pick({1}, 4, all_of))
        index.note_turns(picked)
        seen += picked
    assert len(set(seen[:8])) == 8
    assert {seen.count(Head(1, placement, 500)) for placement in range(10)} == {2}


def test_what_nobody_takes_is_asked_about_once_until_somebody_comes_who_may() -> None:
    asked = []

    def takers(head: Head) -> int:
        asked.append(head)
        return head.placement_id in may_take

    may_take = {5}
    index = index_of(*[Head(1, placement, 500) for placement in range(1_000)])
    assert list(index.pick({1}, 64, takers)) == [Head(1, 5, 500)]
    assert len(asked) == 1_000
    asked.clear()
    # Also when they are named again, by a hint or by the next read.
    index.add(Head(1, 8, 500))
    index.replace([Head(1, placement, 500) for placement in range(1_000)])
    assert list(index.pick({1}, 64, takers)) == asked == [Head(1, 5, 500)]
    asked.clear()
    may_take |= {8, 9}
    assert index.classes_aside(1) == set(range(1_000)) - {5}
    assert index.classes_aside(2) == set()
    index.welcome(1, {8, 9})
    assert set(index.pick({1}, 64, takers)) == {Head(1, placement, 500) for placement in (5, 8, 9)}
    assert len(asked) == 3


def test_what_is_bound_to_an_agent_waits_for_that_agent() -> None:
    head = Head(1, 1, 500, AGENT)
    index = index_of(head, Head(1, 1, 500))
    index.pick({1}, 64, lambda _: 0)
    index.welcome(1, {1})
    assert list(index.pick({1}, 64, all_of)) == [Head(1, 1, 500)]
    index.welcome_agent(UUID(int=8))
    assert head not in index.pick({1}, 64, all_of)
    index.welcome_agent(AGENT)
    assert head in index.pick({1}, 64, all_of)


def test_what_is_not_known_yet_is_passed_over_but_not_set_aside() -> None:
    index = index_of(Head(1, 1, 500))
    assert index.pick({1}, 64, lambda _: None) == {}
    assert list(index.pick({1}, 64, all_of)) == [Head(1, 1, 500)]


def test_what_has_no_room_is_left_out_until_the_heads_are_read_again() -> None:
    head, other = Head(1, 1, 500), Head(1, 2, 500)
    index = index_of(head, other)
    index.note_full([head])
    index.add(head)
    assert list(index.pick({1}, 64, all_of)) == [other]
    index.replace([head, other])
    assert set(index.pick({1}, 64, all_of)) == {head, other}


heads = st.builds(
    Head, st.integers(1, 2), st.integers(1, 4), st.integers(1, 2), st.sampled_from([None, None, AGENT])
)
steps = st.lists(
    st.tuples(st.just("add"), heads)
    | st.tuples(st.just("replace"), st.lists(heads, max_size=8))
    | st.tuples(st.just("full"), heads)
    | st.tuples(st.just("empty"), heads)
    | st.tuples(st.just("comes"), st.sets(st.integers(1, 4))),
    max_size=20,
)


@settings(deadline=None, max_examples=200)
@given(steps)
def test_no_head_that_somebody_may_take_is_ever_forgotten(story: list[tuple[str, object]]) -> None:
    index, there, full, able = BacklogIndex(), set[Head](), set[Head](), set[int]()

    def takers(head: Head) -> int:
        return head.placement_id in able

    for what, value in story:
        match what, value:
            case "add", Head() as head:
                index.add(head)
                there.add(head)
            case "replace", list() as found:
                index.replace(found)
                there, full = set(found), set()
            case "full", Head() as head if head in index.pick({1, 2}, 64, takers):
                index.note_full([head])
                full.add(head)
            case "empty", Head() as head:
                index.remove([head])
                there, full = there - {head}, full - {head}
            case "comes", set() as classes:
                able.update(classes)
                for namespace in (1, 2):
                    index.welcome(namespace, index.classes_aside(namespace) & classes)
                index.welcome_agent(AGENT)
        expected = {head for head in there - full if head.placement_id in able}
        assert set(index.pick({1, 2}, 64, takers)) == expected
        assert set(index) == there


def test_what_is_not_due_yet_is_not_asked_about_until_it_is() -> None:
    """Nor does it keep away what is less urgent and due."""
    early, late, due = Head(1, 1, 900), Head(1, 2, 900), Head(1, 1, 500)
    bound = Head(1, 1, 900, AGENT)
    index = index_of(early, late, due, bound)
    times = {early: NOON + MINUTE, late: NOON + 2 * MINUTE, due: NOON, bound: NOON + MINUTE}
    index.lay_down(times, NOON)
    assert index.next_alarm() == NOON + MINUTE
    assert list(index.pick({1}, 9, all_of)) == [due]
    index.rouse(NOON + MINUTE)
    assert set(index.pick({1}, 9, all_of)) == {early, bound, due}
    assert index.next_alarm() == NOON + 2 * MINUTE
    # What it is told of may be due.
    index.add(late)
    assert late in index.pick({1}, 9, all_of)
    assert index.next_alarm() is None


def test_a_read_wakes_all_and_forgets_what_is_gone() -> None:
    stays, goes, unknown = Head(1, 1, 500), Head(1, 2, 500), Head(1, 3, 500)
    index = index_of(stays, goes)
    index.lay_down({stays: NOON + MINUTE, goes: NOON + MINUTE, unknown: NOON + MINUTE}, NOON)
    index.remove([goes])
    assert index.pick({1}, 9, all_of) == {}
    index.rouse(NOON + MINUTE)
    assert list(index.pick({1}, 9, all_of)) == [stays]
    index.lay_down({stays: NOON + 2 * MINUTE}, NOON)
    index.replace([stays])
    assert list(index.pick({1}, 9, all_of)) == [stays]
    assert index.next_alarm() is None
