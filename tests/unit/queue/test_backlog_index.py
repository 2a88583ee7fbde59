"""Picking backlog entries: in order, alternating, and without iterating over those that suit no poll."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given, settings, strategies as st

from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.queue.backlog_index import BacklogIndex

AGENT = UUID(int=7)
NOON, MINUTE = datetime(2026, 3, 1, 12, tzinfo=UTC), timedelta(minutes=1)


def index_of(*entries: BacklogEntry) -> BacklogIndex:
    index = BacklogIndex()
    index.replace(entries)
    return index


def all_of(entry: BacklogEntry) -> int:
    return 5


def test_the_highest_priority_comes_first_and_no_more_than_asked_for() -> None:
    entries = [BacklogEntry(1, placement, priority) for placement in (1, 2) for priority in (100, 900, 500)]
    picked = index_of(*entries, BacklogEntry(2, 1, 1)).pick({1, 3}, 3, all_of)
    assert [entry.priority for entry in picked] == [900, 900, 500]
    assert set(picked.values()) == {5}


def test_heads_of_one_priority_take_turns() -> None:
    index = index_of(*[BacklogEntry(1, placement, 500) for placement in range(10)])
    seen = []
    for _ in range(5):
        picked = list(index.pick({1}, 4, all_of))
        index.note_served(picked)
        seen += picked
    assert len(set(seen[:8])) == 8
    assert {seen.count(BacklogEntry(1, placement, 500)) for placement in range(10)} == {2}


def test_what_nobody_takes_is_asked_about_once_until_somebody_comes_who_may() -> None:
    asked = []

    def demand(entry: BacklogEntry) -> int:
        asked.append(entry)
        return entry.placement_id in may_take

    may_take = {5}
    index = index_of(*[BacklogEntry(1, placement, 500) for placement in range(1_000)])
    assert list(index.pick({1}, 64, demand)) == [BacklogEntry(1, 5, 500)]
    assert len(asked) == 1_000
    asked.clear()
    # Also when they are named again, by a hint or by the next read.
    index.add(BacklogEntry(1, 8, 500))
    index.replace([BacklogEntry(1, placement, 500) for placement in range(1_000)])
    assert list(index.pick({1}, 64, demand)) == asked == [BacklogEntry(1, 5, 500)]
    asked.clear()
    may_take |= {8, 9}
    assert index.unsuited_classes(1) == set(range(1_000)) - {5}
    assert index.unsuited_classes(2) == set()
    index.restore_classes(1, {8, 9})
    assert set(index.pick({1}, 64, demand)) == {BacklogEntry(1, placement, 500) for placement in (5, 8, 9)}
    assert len(asked) == 3


def test_what_is_bound_to_an_agent_waits_for_that_agent() -> None:
    entry = BacklogEntry(1, 1, 500, AGENT)
    index = index_of(entry, BacklogEntry(1, 1, 500))
    index.pick({1}, 64, lambda _: 0)
    index.restore_classes(1, {1})
    assert list(index.pick({1}, 64, all_of)) == [BacklogEntry(1, 1, 500)]
    index.restore_bound(UUID(int=8))
    assert entry not in index.pick({1}, 64, all_of)
    index.restore_bound(AGENT)
    assert entry in index.pick({1}, 64, all_of)


def test_what_is_not_known_yet_is_passed_over_but_not_set_aside() -> None:
    index = index_of(BacklogEntry(1, 1, 500))
    assert index.pick({1}, 64, lambda _: None) == {}
    assert list(index.pick({1}, 64, all_of)) == [BacklogEntry(1, 1, 500)]


def test_what_has_no_room_is_left_out_until_the_heads_are_read_again() -> None:
    entry, other = BacklogEntry(1, 1, 500), BacklogEntry(1, 2, 500)
    index = index_of(entry, other)
    index.note_full([entry])
    index.add(entry)
    assert list(index.pick({1}, 64, all_of)) == [other]
    index.replace([entry, other])
    assert set(index.pick({1}, 64, all_of)) == {entry, other}


entries = st.builds(
    BacklogEntry,
    st.integers(1, 2),
    st.integers(1, 4),
    st.integers(1, 2),
    st.sampled_from([None, None, AGENT]),
)
steps = st.lists(
    st.tuples(st.just("add"), entries)
    | st.tuples(st.just("replace"), st.lists(entries, max_size=8))
    | st.tuples(st.just("full"), entries)
    | st.tuples(st.just("empty"), entries)
    | st.tuples(st.just("comes"), st.sets(st.integers(1, 4))),
    max_size=20,
)


@settings(deadline=None, max_examples=200)
@given(steps)
def test_no_head_that_somebody_may_take_is_ever_forgotten(story: list[tuple[str, object]]) -> None:
    index, there, full, able = BacklogIndex(), set[BacklogEntry](), set[BacklogEntry](), set[int]()

    def demand(entry: BacklogEntry) -> int:
        return entry.placement_id in able

    for what, value in story:
        match what, value:
            case "add", BacklogEntry() as entry:
                index.add(entry)
                there.add(entry)
            case "replace", list() as found:
                index.replace(found)
                there, full = set(found), set()
            case "full", BacklogEntry() as entry if entry in index.pick({1, 2}, 64, demand):
                index.note_full([entry])
                full.add(entry)
            case "empty", BacklogEntry() as entry:
                index.remove([entry])
                there, full = there - {entry}, full - {entry}
            case "comes", set() as classes:
                able.update(classes)
                for namespace in (1, 2):
                    index.restore_classes(namespace, index.unsuited_classes(namespace) & classes)
                index.restore_bound(AGENT)
        expected = {entry for entry in there - full if entry.placement_id in able}
        assert set(index.pick({1, 2}, 64, demand)) == expected
        assert set(index) == there


def test_what_is_not_due_yet_is_not_asked_about_until_it_is() -> None:
    """Nor does it keep away what is less urgent and due."""
    early, late, due = BacklogEntry(1, 1, 900), BacklogEntry(1, 2, 900), BacklogEntry(1, 1, 500)
    bound = BacklogEntry(1, 1, 900, AGENT)
    index = index_of(early, late, due, bound)
    times = {early: NOON + MINUTE, late: NOON + 2 * MINUTE, due: NOON, bound: NOON + MINUTE}
    index.postpone(times, NOON)
    assert index.next_due() == NOON + MINUTE
    assert list(index.pick({1}, 9, all_of)) == [due]
    index.resume(NOON + MINUTE)
    assert set(index.pick({1}, 9, all_of)) == {early, bound, due}
    assert index.next_due() == NOON + 2 * MINUTE
    # What it is told of may be due.
    index.add(late)
    assert late in index.pick({1}, 9, all_of)
    assert index.next_due() is None


def test_a_read_wakes_all_and_forgets_what_is_gone() -> None:
    stays, goes, unknown = BacklogEntry(1, 1, 500), BacklogEntry(1, 2, 500), BacklogEntry(1, 3, 500)
    index = index_of(stays, goes)
    index.postpone({stays: NOON + MINUTE, goes: NOON + MINUTE, unknown: NOON + MINUTE}, NOON)
    index.remove([goes])
    assert index.pick({1}, 9, all_of) == {}
    index.resume(NOON + MINUTE)
    assert list(index.pick({1}, 9, all_of)) == [stays]
    index.postpone({stays: NOON + 2 * MINUTE}, NOON)
    index.replace([stays])
    assert list(index.pick({1}, 9, all_of)) == [stays]
    assert index.next_due() is None
