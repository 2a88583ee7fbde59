"""Which CPUs tasks are given that ask for some."""

from __future__ import annotations

import math

from hypothesis import given, strategies as st

from hetuflow_agent.keeper.limits import Cpus


def test_each_goes_to_those_that_were_assigned_least() -> None:
    cpus = Cpus([3, 1, 2, 0])
    assert cpus.take("a", 1.5) == {0, 1}
    assert cpus.take("b", 0.25) == {2}
    assert cpus.take("c", 1) == {3}
    assert cpus.take("d", 0.5) == {2}
    cpus.give_back("a")
    assert cpus.take("e", 2.0) == {0, 1}


def test_who_asks_for_all_is_not_bound() -> None:
    cpus = Cpus(range(2))
    assert cpus.take("all", 1.1) is None
    assert cpus.take("more", 64) is None
    cpus.give_back("more")
    assert cpus.take("one", 1) == {0}


def test_a_key_is_served_once() -> None:
    cpus = Cpus(range(4))
    assert cpus.take("a", 1) == {0}
    assert cpus.take("a", 1) is None
    cpus.give_back("a")
    cpus.give_back("a")
    assert cpus.take("b", 1) == {0}


@given(st.integers(2, 16), st.lists(st.floats(0.01, 16), max_size=40))
def test_nobody_gets_less_than_asked_for_and_all_comes_back(count: int, wishes: list[float]) -> None:
    cpus = Cpus(range(count))
    for number, wish in enumerate(wishes):
        got = cpus.take(str(number), wish)
        assert (
            got is None
            if math.ceil(wish) >= count
            else got is not None and len(got) == max(1, math.ceil(wish))
        )
    for number in range(len(wishes)):
        cpus.give_back(str(number))
    assert all(abs(left) < 1e-6 for left in cpus._assigned.values())
