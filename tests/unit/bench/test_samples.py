"""The numbers a benchmark reports are what they claim to be."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from bench.samples import Spread, amount_for, paired_ratios, percentile

values = st.lists(st.floats(min_value=0.001, max_value=1e6), min_size=1, max_size=50)


def test_a_spread_is_the_median_between_the_extremes() -> None:
    assert Spread.of([3.0, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0)
    with pytest.raises(ValueError, match="at least one"):
        Spread.of([])


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 1.0), (50, 50.0), (50.5, 51.0), (99, 99.0), (99.1, 100.0), (100, 100.0)]
)
def test_a_percentile_is_by_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([float(n) for n in range(100, 0, -1)], percent) == expected


@given(values, st.floats(min_value=0.1, max_value=100))
def test_a_percentile_is_one_of_the_values_with_enough_at_or_below_it(
    measured: list[float], percent: float
) -> None:
    found = percentile(measured, percent)
    assert found in measured
    assert sum(value <= found for value in measured) >= percent / 100 * len(measured) - 1e-9


@pytest.mark.parametrize("percent", [0, -1, 100.1])
def test_a_percentile_outside_of_its_range_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="up to 100"):
        percentile([1.0], percent)


def test_ratios_are_of_neighbours() -> None:
    # Both halved by noise in the second repetition: the ratio does not notice.
    assert paired_ratios([100.0, 50.0], [200.0, 100.0]) == [0.5, 0.5]
    with pytest.raises(ValueError, match="shorter"):
        paired_ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("seconds", "rate", "step", "expected"),
    [(2, 100, 1, 200), (2, 1, 1, 10), (2, 1e9, 1, 1000), (1, 130, 50, 150), (1, 1, 400, 400)],
)
def test_the_amount_keeps_within_bounds_and_steps(
    seconds: float, rate: float, step: int, expected: int
) -> None:
    assert amount_for(seconds, rate, least=10, most=1000, step=step) == expected
