"""Shares follow weights under saturation, and nobody is starved, however work arrives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.queue.fairness import StrideShares


def entry(namespace: int, placement: int = 1, priority: int = 500) -> BacklogEntry:
    return BacklogEntry(namespace, placement, priority)


def claim(
    shares: StrideShares,
    entries: Sequence[BacklogEntry],
    weights: Mapping[int, float],
    want: int,
    waiting: dict[BacklogEntry, int] | None = None,
) -> Counter[int]:
    """One claim as a server does it: up to three rounds, charging what was really there."""
    given_rows: Counter[int] = Counter()
    for _ in range(3):
        short = want - given_rows.total()
        if not short:
            break
        open_entries = [entry for entry in entries if waiting is None or waiting[entry] > 0]
        for chosen, quota in shares.quotas(open_entries, weights, short):
            rows = quota if waiting is None else min(quota, waiting[chosen])
            if waiting is not None:
                waiting[chosen] -= rows
            given_rows[chosen.namespace_id] += rows
            shares.charge(chosen.namespace_id, rows)
    return given_rows


def saturated(
    shares: StrideShares, weights: Mapping[int, float], wants: Callable[[int], int], rows: int
) -> Counter[int]:
    served: Counter[int] = Counter()
    turn = 0
    while served.total() < rows:
        served += claim(shares, [entry(namespace) for namespace in weights], weights, wants(turn))
        turn += 1
    return served


def assert_shares(served: Counter[int], weights: Mapping[int, float], tolerance: float = 0.1) -> None:
    for namespace, weight in weights.items():
        share = served[namespace] / served.total()
        fair = weight / sum(weights.values())
        assert abs(share - fair) <= tolerance * fair, (namespace, share, fair)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 100), min_size=2, max_size=8),
    st.lists(st.integers(1, 200), min_size=1, max_size=10),
)
def test_shares_follow_weights_whatever_the_batch_sizes(weight_list: list[int], wants: list[int]) -> None:
    weights = dict(enumerate(weight_list, 1))
    # Enough rows for ten of the lightest: below that a share is a matter of rounding.
    rows = 30 * sum(weight_list) // min(weight_list)
    served = saturated(StrideShares(), weights, lambda turn: wants[turn % len(wants)], rows)
    assert_shares(served, weights)


@pytest.mark.parametrize("want", [1, 7, 64, 1000])
def test_one_to_a_thousand(want: int) -> None:
    weights = {1: 1, 2: 1_000, 3: 500}
    assert_shares(saturated(StrideShares(), weights, lambda turn: want, 30_020), weights)


def test_ten_behind_a_hundred_thousand_are_served_at_once() -> None:
    shares, weights = StrideShares(), {1: 100, 2: 100}
    waiting = {entry(1): 100_000, entry(2): 0}
    for _ in range(50):
        claim(shares, list(waiting), weights, 20, waiting)
    waiting[entry(2)] = 10
    first = claim(shares, list(waiting), weights, 20, waiting)
    assert first[2] == 10
    assert first[1] == 10


def test_ten_of_a_light_namespace_wait_their_share_and_no_longer() -> None:
    shares, weights = StrideShares(), {1: 900, 2: 100}
    waiting = {entry(1): 100_000, entry(2): 10}
    served = Counter[int]()
    while waiting[entry(2)]:
        served += claim(shares, list(waiting), weights, 1, waiting)
    assert 80 <= served.total() <= 100


def test_idleness_banks_no_credit() -> None:
    shares, weights = StrideShares(), {1: 100, 2: 100}
    for _ in range(10):
        claim(shares, [entry(1), entry(2)], weights, 10)
    shares.observe([entry(1)])
    for _ in range(1000):
        claim(shares, [entry(1)], weights, 10)
    shares.observe([entry(1), entry(2)])
    assert claim(shares, [entry(1), entry(2)], weights, 100) == {1: 50, 2: 50}


def test_a_newcomer_starts_level_with_those_who_are_there() -> None:
    shares, weights = StrideShares(), {1: 100, 2: 100}
    for _ in range(100):
        claim(shares, [entry(1)], weights, 10)
    assert claim(shares, [entry(1), entry(2)], weights, 10) == {1: 5, 2: 5}


def test_leaving_for_a_moment_wipes_out_no_debt() -> None:
    shares, weights = StrideShares(), {1: 100, 2: 100}
    both = [entry(1), entry(2)]
    claim(shares, both, weights, 2)
    # Namespace 1 had three rows more than its turn, and is gone for a moment.
    shares.charge(1, 3)
    shares.observe([entry(2)])
    shares.observe(both)
    assert claim(shares, both, weights, 3) == {2: 3}


def test_a_namespace_that_comes_and_goes_gains_nothing_by_it() -> None:
    shares, weights = StrideShares(), {1: 100, 2: 100}
    both = [entry(1), entry(2)]
    served: Counter[int] = Counter()
    for _ in range(500):
        served += claim(shares, both, weights, 1)
        shares.observe([entry(1)])
        shares.observe(both)
    assert_shares(served, weights)


def test_weights_may_change_at_run_time() -> None:
    shares = StrideShares()
    saturated(shares, {1: 100, 2: 100}, lambda turn: 10, 10_000)
    changed = {1: 300, 2: 100}
    assert_shares(saturated(shares, changed, lambda turn: 10, 1000), changed, tolerance=0.03)


def test_a_namespace_nobody_weighed_has_the_default() -> None:
    shares = StrideShares(default_weight=100)
    assert dict(shares.quotas([entry(1), entry(2)], {2: 300}, 40)) == {entry(1): 10, entry(2): 30}


@pytest.mark.parametrize("want", [1, 10])
def test_what_fits_few_agents_falls_behind_and_then_starves_nobody(want: int) -> None:
    """Namespace 3 has work for rare agents only; once it has work for all, the others still run."""
    shares, weights = StrideShares(), {1: 100, 2: 300, 3: 100}
    everyone = [entry(1), entry(2), entry(3, placement=9)]
    shares.observe(everyone)
    claim(shares, everyone, weights, 5)
    for _ in range(1000):
        claim(shares, [entry(1), entry(2)], weights, 10)
    served = Counter[int]()
    while served.total() < 1000:
        served += claim(shares, [entry(1), entry(2), entry(3)], weights, want)
    assert_shares(served, weights)


@pytest.mark.parametrize("want", [1, 4])
def test_competitors_keep_their_shares_beside_one_that_is_served_elsewhere(want: int) -> None:
    """Namespace 1 is served alone by agents of its own, far beyond its share; 2 and 3 share the others."""
    shares, weights = StrideShares(), {1: 100, 2: 100, 3: 300}
    everyone = [entry(1), entry(2), entry(3)]
    served: Counter[int] = Counter()
    for _ in range(2000):
        claim(shares, [entry(1)], weights, 50)
        served += claim(shares, everyone, weights, want)
    assert_shares(Counter({2: served[2], 3: served[3]}), {2: 100, 3: 300})


def test_newcomers_start_level_even_while_somebody_is_far_behind() -> None:
    shares, weights = StrideShares(), {1: 100, 2: 100, 3: 100}
    shares.observe([entry(1), entry(2, placement=9)])
    claim(shares, [entry(1), entry(2, placement=9)], weights, 2)
    for _ in range(1000):
        claim(shares, [entry(1)], weights, 10)
    served = claim(shares, [entry(1), entry(3)], weights, 100)
    assert_shares(served, {1: 100, 3: 100})


def test_within_a_namespace_the_highest_priority_comes_first() -> None:
    shares = StrideShares()
    low, high, other = entry(1, priority=1), entry(1, priority=900), entry(2)
    assert dict(shares.quotas([low, high, other], {}, 10)) == {high: 5, other: 5}
    assert dict(shares.quotas([low, high, other], {}, 10, at_most={high: 2})) == {high: 2, low: 3, other: 5}
    assert shares.quotas([high], {}, 10, at_most={high: 2}) == [(high, 2)], "also when there is no other"
    assert shares.quotas([high], {}, 10, at_most={high: 0}) == []


def test_heads_of_one_priority_take_turns() -> None:
    shares = StrideShares()
    entries = [entry(1, placement) for placement in (1, 2, 3)]
    assert [shares.quotas(entries, {}, 1)[0][0].placement_id for _ in range(6)] == [1, 2, 3, 1, 2, 3]
    assert sorted(rows for _, rows in shares.quotas(entries, {}, 11)) == [3, 4, 4]


def test_turns_do_not_depend_on_who_asks_when() -> None:
    """Two kinds of agents ask alternately; the classes only one of them takes must not stay behind."""
    shares = StrideShares()
    served: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for turn in range(400):
        placements = ((1, 2), (1, 3))[turn % 2]
        (chosen, _), *_ = shares.quotas([entry(1, placement) for placement in placements], {}, 1)
        served[turn % 2][chosen.placement_id] += 1
    assert min(served[0].values()) > 50
    assert min(served[1].values()) > 50
    assert {placement for counter in served.values() for placement in counter} == {1, 2, 3}


def test_no_more_heads_than_a_claim_may_probe() -> None:
    entries = [entry(namespace) for namespace in range(500)]
    quotas = StrideShares().quotas(entries, {}, 200, most_entries=64)
    assert len(quotas) == 64
    assert sum(rows for _, rows in quotas) == 200


def test_with_more_namespaces_than_heads_all_have_their_turn() -> None:
    shares, weights = StrideShares(), dict.fromkeys(range(500), 100.0)
    served: Counter[int] = Counter()
    for _ in range(40):
        served += claim(shares, [entry(namespace) for namespace in weights], weights, 64)
    assert set(served) == set(weights)


@settings(deadline=None)
@given(
    st.lists(
        st.builds(entry, st.integers(1, 5), st.integers(1, 4), st.sampled_from([1, 500, 900])), max_size=30
    ),
    st.integers(0, 100),
    st.dictionaries(st.builds(entry, st.integers(1, 5), st.integers(1, 4)), st.integers(0, 9)),
    st.integers(1, 40),
)
def test_quotas_are_exact(
    entries: list[BacklogEntry], want: int, at_most: dict[BacklogEntry, int], most_entries: int
) -> None:
    quotas = StrideShares().quotas(entries, {}, want, at_most=at_most, most_entries=most_entries)
    assigned = dict(quotas)
    assert len(assigned) == len(quotas) <= most_entries
    assert set(assigned) <= set(entries)
    assert all(0 < rows <= at_most.get(chosen, want) for chosen, rows in quotas)
    room = sum(at_most.get(each, want) for each in set(entries))
    if len(set(entries)) <= most_entries:
        assert sum(assigned.values()) == min(want, room)
    else:
        assert sum(assigned.values()) <= want


def test_what_is_gone_is_forgotten() -> None:
    shares, weights = StrideShares(), dict.fromkeys(range(1000), 100.0)
    everyone = [entry(namespace) for namespace in weights]
    shares.observe(everyone)
    claim(shares, everyone, weights, 1000)
    shares.observe(everyone[:1])
    for _ in range(10):
        claim(shares, everyone[:1], weights, 10)
    shares.observe(everyone[:1])
    assert len(shares._time) == len(shares._weights) == len(shares._last_quota) == 1
