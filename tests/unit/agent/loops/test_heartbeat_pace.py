from __future__ import annotations

import pytest

from hetuflow_agent.loops.heartbeat import patience, period, tick
from hetuflow_core.jobfile.leases import SHORTEST_LEASE


@pytest.mark.parametrize(
    ("wanted", "shortest", "holding", "seconds"),
    [(5.0, 300.0, True, 5.0), (5.0, 4.0, True, 1.0), (5.0, None, True, 5.0), (5.0, None, False, 30.0)],
)
def test_four_heartbeats_fit_in_the_shortest_lease(
    wanted: float, shortest: float | None, holding: bool, seconds: float
) -> None:
    assert period(wanted, shortest, holding=holding) == seconds


@pytest.mark.parametrize(("shortest", "seconds"), [(None, 5.0), (300.0, 5.0), (4.0, 1.0), (1.0, 0.5)])
def test_with_a_short_lease_an_answer_is_not_waited_for_long(shortest: float | None, seconds: float) -> None:
    assert patience(shortest) == seconds


def test_what_comes_while_nothing_was_held_is_looked_at_in_time() -> None:
    assert tick(holding=True) < tick(holding=False) <= SHORTEST_LEASE.total_seconds() / 4
