"""What is remembered of who was served before, by namespace and by backlog entry, and for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.queue.backlog_index import BacklogIndex
from hetuflow_server.queue.fairness import StrideShares

ONE, TWO, THREE = [BacklogEntry(namespace, 1, 500) for namespace in (1, 2, 3)]
ALIKE = {1: 100.0, 2: 100.0}


def claim(
    shares: StrideShares, entries: Sequence[BacklogEntry], weights: Mapping[int, float], want: int
) -> Counter[int]:
    given: Counter[int] = Counter()
    for entry, rows in shares.quotas(entries, weights, want):
        shares.charge(entry.namespace_id, rows)
        given[entry.namespace_id] += rows
    return given


def test_who_was_away_is_paid_nothing_back_although_all_were_gone_meanwhile() -> None:
    shares = StrideShares()
    claim(shares, [ONE, TWO], ALIKE, 2)
    shares.observe([ONE])
    claim(shares, [ONE], ALIKE, 100)
    shares.observe([ONE])
    shares.observe([])
    assert claim(shares, [ONE, TWO], ALIKE, 100) == {1: 50, 2: 50}


def test_a_newcomer_starts_beside_who_is_next_and_not_behind_who_was_just_served() -> None:
    shares, weights = StrideShares(), {1: 1.0, 2: 100.0, 3: 100.0}
    assert claim(shares, [ONE, TWO], weights, 51) == {1: 1, 2: 50}
    assert claim(shares, [ONE, TWO, THREE], weights, 10) == {2: 5, 3: 5}


def test_nothing_is_remembered_of_who_has_long_been_gone() -> None:
    shares = StrideShares()
    claim(shares, [ONE, TWO], ALIKE, 2)
    shares.observe([ONE])
    claim(shares, [ONE], ALIKE, 10)
    shares.observe([ONE])
    assert list(shares._last_charge) == [1]


@pytest.mark.parametrize("became", ["full", "empty", "nobody's"])
def test_a_head_that_was_served_and_cannot_be_now_has_no_turn(became: str) -> None:
    index, other = BacklogIndex(), BacklogEntry(1, 2, 500)
    for entry in (ONE, other):
        index.add(entry)
    if became == "full":
        index.note_full([ONE])
    elif became == "empty":
        index.remove([ONE])
    else:
        index.pick({1}, 9, lambda entry: 0 if entry == ONE else 1)
    index.note_served([ONE, other])
    assert list(index.pick({1}, 9, lambda _: 1)) == [other]
