"""How many items of a map, or hosts of a fleet, run at once, and when enough have succeeded."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, strategies as st

from hetuflow_core.flow import FanOut, ItemCounts, ItemShare, fleet_spread, may_start, outcome
from hetuflow_core.states import FlowNodeStatus as S


def test_waves_are_cumulative_and_rounded_up() -> None:
    spread = fleet_spread(10, waves=[ItemShare(count=1), ItemShare(percent=25), ItemShare(percent=100)])
    assert spread.waves == (1, 3, 10)
    assert may_start(spread, ItemCounts()) == 1
    assert may_start(spread, ItemCounts(started=1)) == 0
    assert may_start(spread, ItemCounts(started=1, succeeded=1)) == 2
    assert may_start(spread, ItemCounts(started=3, succeeded=2)) == 0
    assert may_start(spread, ItemCounts(started=3, succeeded=3)) == 7


def test_no_more_hosts_are_down_at_once_than_allowed() -> None:
    spread = fleet_spread(10, parallel=ItemShare(percent=20))
    assert may_start(spread, ItemCounts()) == 2
    assert may_start(spread, ItemCounts(started=2, succeeded=1)) == 1


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (ItemCounts(started=10, succeeded=9), None),
        (ItemCounts(started=10, succeeded=9, failed=1), S.SUCCEEDED),
        (ItemCounts(started=10, succeeded=8, failed=2), S.FAILED),
        # Failing for certain, but some still run.
        (ItemCounts(started=5, failed=2), None),
        (ItemCounts(started=2, failed=2), S.FAILED),
        (ItemCounts(started=10, skipped=10), S.SKIPPED),
    ],
)
def test_a_quorum_decides(counts: ItemCounts, expected: S | None) -> None:
    assert outcome(fleet_spread(10, quorum=ItemShare(percent=90)), counts) is expected


def test_nothing_more_starts_once_the_quorum_is_out_of_reach() -> None:
    assert may_start(fleet_spread(10, quorum=ItemShare(count=9)), ItemCounts(started=2, failed=2)) == 0


def test_an_ending_run_waits_for_what_runs_only() -> None:
    spread = fleet_spread(10)
    assert outcome(spread, ItemCounts(started=3, succeeded=2), ending=True) is None
    assert outcome(spread, ItemCounts(started=3, succeeded=3), ending=True) is S.CANCELLED
    assert outcome(spread, ItemCounts(started=10, succeeded=10), ending=True) is S.SUCCEEDED


@given(
    st.integers(1, 60),
    st.lists(st.integers(1, 60).map(lambda count: ItemShare(count=count)), max_size=4),
    st.none() | st.integers(1, 100).map(lambda percent: ItemShare(percent=percent)),
    st.none() | st.integers(0, 100).map(lambda percent: ItemShare(percent=percent)),
    st.randoms(use_true_random=False),
)
def test_it_always_ends_and_starts_each_once(
    total: int, waves: list[ItemShare], parallel: ItemShare | None, quorum: ItemShare | None, lots: Random
) -> None:
    spread: FanOut = fleet_spread(total, waves=waves, parallel=parallel, quorum=quorum)
    started = succeeded = failed = 0
    while outcome(spread, counts := ItemCounts(started, succeeded, failed)) is None:
        started += may_start(spread, counts)
        assert started - succeeded - failed <= spread.parallel
        assert started - succeeded - failed > 0, "nothing runs and nothing may start"
        if lots.random() < 0.8:
            succeeded += 1
        else:
            failed += 1
    assert started <= total
    assert (succeeded >= spread.quorum) == (
        outcome(spread, ItemCounts(started, succeeded, failed)) is not S.FAILED
    )
