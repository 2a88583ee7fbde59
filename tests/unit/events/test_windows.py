"""What events and deadlines do to windows, for any order and spacing of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID

from hypothesis import given, strategies as st

from hetuflow_core.events import Absence, Debounce, EventSpec, Throttle, Wanted
from hetuflow_core.events.windows import (
    DEEPEST_CHAIN,
    MOST_CHAINED,
    Arrival,
    EventOutcome,
    Window,
    at_deadline,
    decide,
    first_watch,
    may_chain,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
E, F = Wanted(name="e"), Wanted(name="f")


@dataclass
class Simulation:
    """One key of one schedule: events at times, deadlines looked at when they come, or a little later."""

    spec: EventSpec
    late: timedelta = timedelta(0)
    window: Window | None = None
    # (when, which events) of each task.
    started: list[tuple[datetime, tuple[int, ...]]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    outcomes: list[EventOutcome] = field(default_factory=list)

    def run(self, arrivals: Sequence[tuple[float, int | None]], *, until: float) -> Simulation:
        """`arrivals` are (second, place), None for what answers; the n-th event has the id n."""
        for number, (second, place) in enumerate(arrivals, start=1):
            now = START + timedelta(seconds=second)
            self._deadlines(now)
            places = frozenset[int]() if place is None else frozenset({place})
            arrival = Arrival(UUID(int=number), places, place is None, now, UUID(int=1000 + number))
            decision = decide(self.spec, self.window, arrival)
            if decision.overdue is not None:
                self._close(decision.overdue, now)
            self.window = decision.window
            self.outcomes.append(decision.outcome)
            if decision.starts:
                self.started.append((now, tuple(id_.int for id_ in decision.starts)))
                self.counts.append(1)
        self._deadlines(START + timedelta(seconds=until))
        return self

    def _deadlines(self, now: datetime) -> None:
        while self.window is not None and self.window.deadline_at + self.late <= now:
            window, looked_at = self.window, self.window.deadline_at + self.late
            left, starts = at_deadline(self.spec, window, looked_at)
            assert left is None or left.deadline_at > looked_at
            self.window = left
            if starts:
                self._close(window, window.deadline_at)

    def _close(self, window: Window, at: datetime) -> None:
        self.started.append((at, (window.last_event.int,) if window.last_event else ()))
        self.counts.append(window.count)


def seconds(*, most: int = 25) -> st.SearchStrategy[list[float]]:
    return st.lists(st.integers(0, 2_000).map(lambda n: n / 10), max_size=most).map(sorted)


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def bursts(times: Sequence[float], quiet: float, at_most: float | None) -> Iterator[list[float]]:
    """What debounce means, said another way."""
    burst: list[float] = []
    for time in times:
        if burst:
            end = burst[-1] + quiet
            end = end if at_most is None else min(end, burst[0] + at_most)
            if time >= end:
                yield burst
                burst = []
        burst.append(time)
    if burst:
        yield burst


@given(
    seconds(),
    st.integers(1, 30),
    st.none() | st.integers(30, 60),
    st.sampled_from([0.0, 0.5, 7.0]),
)
def test_debounce_starts_once_for_each_burst(
    times: list[float], quiet: int, at_most: int | None, late: float
) -> None:
    spec = EventSpec(
        name="e",
        debounce=Debounce(
            quiet=timedelta(seconds=quiet),
            at_most=None if at_most is None else timedelta(seconds=at_most),
        ),
    )
    run = Simulation(spec, timedelta(seconds=late)).run([(time, 0) for time in times], until=1_000)
    expected = list(bursts(times, quiet, at_most))
    assert run.counts == [len(burst) for burst in expected]
    assert sum(run.counts) == len(times)
    for (started_at, _), burst in zip(run.started, expected, strict=True):
        latest = burst[0] + (at_most or 10_000)
        # Somebody who looks late does not change what belongs together, only when it is told.
        assert at(min(burst[-1] + quiet, latest)) <= started_at <= at(burst[-1] + quiet + 100)


@given(seconds(), st.integers(1, 4), st.integers(1, 40))
def test_throttle_lets_no_more_through_in_a_time_that_begins_with_the_first(
    times: list[float], most: int, per: int
) -> None:
    spec = EventSpec(name="e", throttle=Throttle(max=most, per=timedelta(seconds=per)))
    run = Simulation(spec).run([(time, 0) for time in times], until=1_000)
    started = [when for when, _ in run.started]
    assert len(started) + run.outcomes.count(EventOutcome.THROTTLED) == len(times)
    expected: list[float] = []
    begun, count = -1e9, 0
    for time in times:
        if time >= begun + per:
            begun, count = time, 0
        if count < most:
            expected.append(time)
            count += 1
    assert started == [at(time) for time in expected]


@given(
    st.lists(st.tuples(st.integers(0, 600).map(lambda n: n / 10), st.integers(0, 2)), max_size=25),
    st.integers(1, 30),
)
def test_all_of_uses_each_event_once_and_none_that_is_too_old(
    arrivals: list[tuple[float, int]], within: int
) -> None:
    arrivals = sorted(arrivals, key=lambda one: one[0])
    spec = EventSpec(all_of=(E, F, Wanted(name="g")), within=timedelta(seconds=within))
    run = Simulation(spec).run(arrivals, until=1_000)
    expected: list[tuple[int, ...]] = []
    latest: dict[int, int] = {}
    for number, (time, place) in enumerate(arrivals, start=1):
        latest = {one: event for one, event in latest.items() if arrivals[event - 1][0] + within > time}
        latest[place] = number
        if len(latest) == 3:
            expected.append(tuple(latest[one] for one in range(3)))
            latest = {}
    assert [events for _, events in run.started] == expected
    used = [event for events in expected for event in events]
    assert len(used) == len(set(used))
    assert run.window is None


def test_one_event_may_fill_several_places() -> None:
    spec = EventSpec(all_of=(E, Wanted(name="*")), within=timedelta(seconds=1))
    decision = decide(spec, None, Arrival(UUID(int=1), frozenset({0, 1}), False, START, UUID(int=9)))
    assert decision.starts == (UUID(int=1), UUID(int=1))


@given(
    st.lists(st.tuples(st.integers(0, 600).map(lambda n: n / 10), st.sampled_from([0, None])), max_size=20),
    st.integers(1, 30),
    st.sampled_from([0.0, 3.0]),
)
def test_absence_starts_for_what_was_not_answered_in_time(
    arrivals: list[tuple[float, int | None]], within: int, late: float
) -> None:
    arrivals = sorted(arrivals, key=lambda one: one[0])
    spec = EventSpec(name="e", absence=Absence(name="f", within=timedelta(seconds=within)))
    run = Simulation(spec, timedelta(seconds=late)).run(arrivals, until=1_000)
    expected: list[tuple[int, ...]] = []
    since: tuple[float, int] | None = None
    for number, (time, place) in enumerate(arrivals, start=1):
        if since is not None and time >= since[0] + within:
            expected.append((since[1],))
            since = None
        since = None if place is None else since or (time, number)
    if since is not None:
        expected.append((since[1],))
    assert [events for _, events in run.started] == expected


@given(seconds(), st.integers(1, 30))
def test_silence_starts_once_for_each_gap(times: list[float], within: int) -> None:
    spec = EventSpec(absence=Absence(name="e", within=timedelta(seconds=within)))
    watch = first_watch(spec, UUID(int=500), START)
    run = Simulation(spec, window=watch).run([(time, None) for time in times], until=1_000)
    # As instants: the difference of two fractions may be a little less than it should be.
    gaps = [
        at(after) - at(before) >= timedelta(seconds=within) for before, after in pairwise([0.0, *times, 1e3])
    ]
    assert len(run.started) == sum(gaps)


def test_only_what_guards_silence_is_watched_from_the_beginning() -> None:
    spec = EventSpec(name="e", absence=Absence(name="f", within=timedelta(seconds=1)))
    assert first_watch(spec, UUID(int=1), START) is None
    assert first_watch(EventSpec(name="e"), UUID(int=1), START) is None
    keyed = EventSpec(absence=Absence(name="f", within=timedelta(seconds=1)), key="payload.x")
    assert first_watch(keyed, UUID(int=1), START) is None


def test_a_deadline_that_has_not_come_changes_nothing() -> None:
    spec = EventSpec(name="e", debounce=Debounce(quiet=timedelta(seconds=1)))
    window = Window(UUID(int=1), START, START + timedelta(seconds=1))
    assert at_deadline(spec, window, START) == (window, False)


def test_chains_end_by_depth_and_rate() -> None:
    assert may_chain(0, MOST_CHAINED * 2) is None
    assert may_chain(DEEPEST_CHAIN, 0) is None
    assert "longer" in (may_chain(DEEPEST_CHAIN + 1, 0) or "")
    assert may_chain(1, MOST_CHAINED - 1) is None
    assert "per minute" in (may_chain(1, MOST_CHAINED) or "")
