from __future__ import annotations

import random

import pytest

from hetuflow_agent.gateway import Backoff, Unanswered


class Highest(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return b


def test_the_ceiling_doubles_up_to_the_longest_and_starts_anew_after_success() -> None:
    backoff = Backoff(Highest(), first=0.2, longest=2.0)
    assert [backoff.fail() for _ in range(6)] == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
    backoff.succeed()
    assert backoff.fail() == pytest.approx(0.2)


def test_the_draw_is_spread_from_nothing_to_the_ceiling() -> None:
    rng = random.Random(7)
    drawn = []
    for _ in range(500):
        backoff = Backoff(rng, first=1.0)
        drawn.append(backoff.fail())
    assert min(drawn) < 0.05
    assert max(drawn) > 0.95


def test_it_never_returns_before_the_server_wants_it() -> None:
    backoff = Backoff(random.Random(1), first=0.2)
    later = Unanswered("The server is busy.", retry_after=30.0)
    assert all(backoff.fail(later) >= 30.0 for _ in range(20))
