"""Reckoning the server's time from its answers."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime

from hypothesis import given, strategies as st

from hetuflow_agent.gateway.server_clock import Sample, ServerClock, best, sample
from hetuflow_core.runtime.clock import ManualClock

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@given(
    offset=st.floats(0, 1e6),
    there=st.floats(0, 5),
    back=st.floats(0, 5),
    sent=st.floats(0, 1e6),
)
def test_a_sample_errs_by_at_most_half_its_round_trip(
    offset: float, there: float, back: float, sent: float
) -> None:
    stamped = int((sent + there + offset) * 1000)
    found = sample(sent, sent + there + back, stamped)
    assert abs(found.offset - offset) <= (there + back) / 2 + 0.0011


def test_the_quickest_answer_wins_while_it_is_fresh() -> None:
    quick, slow = Sample(5.0, 0.010, 100.0), Sample(6.0, 0.200, 110.0)
    assert best(deque([quick, slow]), 111.0) is quick


def test_an_old_answer_gives_way_because_clocks_drift() -> None:
    quick, slow = Sample(5.0, 0.010, 100.0), Sample(6.0, 0.200, 5_000.0)
    assert best(deque([quick, slow]), 5_001.0) is slow


def test_before_the_first_answer_it_is_the_local_clock() -> None:
    clock = ManualClock(NOON)
    assert abs(ServerClock(clock).now_ms() - NOON_MS) <= 1


def test_a_server_ahead_of_us_is_followed_whatever_the_local_clock_does() -> None:
    clock = ManualClock(NOON)
    server = ServerClock(clock)
    sent = clock.boottime()
    clock.advance(0.02)
    server.learn(sent, clock.boottime(), NOON_MS + 60_010)
    due = NOON_MS + 65_000
    at = server.boottime_of(due)
    clock.step_wall(-3_600)
    assert abs(at - (sent + 5.0)) < 0.002
    assert server.boottime_of(due) == at
    clock.advance(at - clock.boottime())
    assert abs(server.now_ms() - due) <= 1


@given(
    offset=st.floats(1.6e9, 1.7e9),
    trips=st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=6),
    due_in=st.integers(-5_000, 5_000),
)
def test_nothing_is_reached_early_however_lopsided_the_answers_travel(
    offset: float, trips: list[tuple[float, float]], due_in: int
) -> None:
    clock = ManualClock(NOON)
    server = ServerClock(clock)
    for there, back in trips:
        sent = clock.boottime()
        clock.advance(there)
        stamped = int((clock.boottime() + offset) * 1000)
        clock.advance(back)
        server.learn(sent, clock.boottime(), stamped)
    due = int((clock.boottime() + offset) * 1000) + due_in
    reached = server.boottime_reaching(due)
    quickest = min(there + back for there, back in trips)
    # Floats of this size are exact to a fraction of a microsecond.
    assert reached + offset >= due / 1000 - 1e-6
    assert reached + offset <= due / 1000 + quickest + 0.01


def test_a_clock_that_is_an_hour_off_changes_nothing() -> None:
    for hours in (-1, 1):
        clock = ManualClock(NOON)
        clock.step_wall(3_600 * hours)
        server = ServerClock(clock)
        server.learn(clock.boottime(), clock.boottime(), NOON_MS)
        assert abs(server.boottime_reaching(NOON_MS + 1_000) - clock.boottime() - 1.0) < 0.002
        assert abs(server.now_ms() - NOON_MS) <= 1


def test_a_better_answer_counts_from_the_moment_it_is_there() -> None:
    clock = ManualClock(NOON, seconds=100.0)
    server = ServerClock(clock)
    server.learn(98.0, 100.0, NOON_MS)
    assert server.now_ms() == NOON_MS + 1_000
    server.learn(99.98, 100.0, NOON_MS)
    assert server.now_ms() == NOON_MS + 10


def test_what_is_certain_is_never_later_than_what_is_likely() -> None:
    """The quickest answer may say less than a slower one says for certain."""
    clock = ManualClock(NOON, seconds=100.0)
    server = ServerClock(clock)
    server.learn(99.9, 100.0, NOON_MS)
    server.learn(99.8, 100.0, NOON_MS + 100)
    assert server.boottime_of(NOON_MS) <= server.boottime_reaching(NOON_MS)
