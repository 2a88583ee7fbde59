"""What an event or a deadline does to a schedule that counts, collects or waits: pure functions of a window.

A window is what a schedule remembers for one value of its key, and has a deadline at which it is looked at
again. Whoever decides holds its row, so that decisions about one window come one after the other.

    debounce   opens with the first event, is put off by each, and starts one task at its deadline
    throttle   opens with the first start; a new one opens after its deadline
    all_of     holds the latest event for each place, as long as it is young enough
    absence    opens with what it counts from; what comes in time closes it, its deadline starts a task
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from hetuflow_core.events.spec import EventSpec, Mode

# Chains of events that tasks emit because of events end here.
DEEPEST_CHAIN: Final = 16
# So many tasks a schedule starts in a minute for events that come of tasks which events have started.
MOST_CHAINED: Final = 600
CHAIN_PERIOD: Final = timedelta(minutes=1)


class EventOutcome(StrEnum):
    """What became of an event at one schedule."""

    STARTED = "started"
    # It counts, and whatever comes of it comes later.
    DEBOUNCED = "debounced"
    COLLECTED = "collected"
    AWAITED = "awaited"
    # It kept a task from being started.
    ANSWERED = "answered"
    # It starts nothing, and why.
    THROTTLED = "throttled"
    SKIPPED = "skipped"
    FAILED = "failed"
    LOOP = "loop"


@dataclass(frozen=True, slots=True)
class Collected:
    event_id: UUID
    at: datetime


@dataclass(frozen=True, slots=True)
class Window:
    id: UUID
    opened_at: datetime
    deadline_at: datetime
    count: int = 1
    # None when it was opened by no event.
    last_event: UUID | None = None
    # By place in `all_of`.
    collected: Mapping[int, Collected] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event that a schedule wants."""

    event_id: UUID
    # In which places of `wanted` it counts.
    places: frozenset[int]
    # Whether it is what must not be absent.
    answers: bool
    at: datetime
    # The id of the window, if it opens one.
    new_window: UUID


@dataclass(frozen=True, slots=True)
class WindowDecision:
    outcome: EventOutcome
    # What there is from now on; None: nothing.
    window: Window | None
    # With the events of the places of `all_of`, in their order, or the one event.
    starts: tuple[UUID, ...] = ()
    # A window whose deadline had come and that nobody had looked at: it starts a task first.
    overdue: Window | None = None


def decide(spec: EventSpec, window: Window | None, arrival: Arrival) -> WindowDecision:
    """What an event does to the window of its key, after what the window's own deadline did to it."""
    overdue = None
    if window is not None and window.deadline_at <= arrival.at:
        left, starts = at_deadline(spec, window, arrival.at)
        window, overdue = left, window if starts else None
    decision = _decide(spec, window, arrival)
    return decision if overdue is None else replace(decision, overdue=overdue)


def _decide(spec: EventSpec, window: Window | None, arrival: Arrival) -> WindowDecision:
    match spec.mode:
        case Mode.DEBOUNCE:
            return _debounced(spec, window, arrival)
        case Mode.THROTTLE:
            return _throttled(spec, window, arrival)
        case Mode.ALL_OF:
            return _collected(spec, window, arrival)
        case Mode.ABSENCE:
            return _awaited(spec, window, arrival)
        case Mode.EACH:
            return WindowDecision(EventOutcome.STARTED, None, (arrival.event_id,))


def at_deadline(spec: EventSpec, window: Window, now: datetime) -> tuple[Window | None, bool]:
    """What is left of a window whose deadline has come, and whether a task starts."""
    if window.deadline_at > now:
        return window, False
    match spec.mode:
        case Mode.DEBOUNCE | Mode.ABSENCE:
            return None, True
        case Mode.ALL_OF:
            return _still_young(spec, window, now), False
        case _:
            return None, False


def first_watch(spec: EventSpec, new_window: UUID, now: datetime) -> Window | None:
    """The window of a schedule that guards silence, from when it is enabled; keys are known only later."""
    if spec.absence is None or not spec.guards_silence or spec.key is not None:
        return None
    return Window(new_window, now, now + spec.absence.within, count=0)


def may_chain(depth: int, started: int) -> str | None:
    """Why an event that came of a task starts nothing: the chain is too long, or there are too many."""
    if depth > DEEPEST_CHAIN:
        return f"the chain of events that tasks emit because of events is longer than {DEEPEST_CHAIN}"
    if depth > 0 and started >= MOST_CHAINED:
        return f"tasks that events have started emit more than {MOST_CHAINED} events a minute that count here"
    return None


def _debounced(spec: EventSpec, window: Window | None, arrival: Arrival) -> WindowDecision:
    if (said := spec.debounce) is None:
        raise ValueError("only debounce decides so")
    opened_at = window.opened_at if window is not None else arrival.at
    latest = opened_at + said.at_most if said.at_most is not None else None
    deadline = arrival.at + said.quiet
    if latest is not None:
        deadline = min(deadline, latest)
    if window is None:
        kept = Window(arrival.new_window, opened_at, deadline, 1, arrival.event_id)
    else:
        # Never back: of two events that were looked at in the wrong order the later one counts.
        deadline = max(deadline, window.deadline_at)
        kept = replace(
            window,
            deadline_at=deadline if latest is None else min(deadline, latest),
            count=window.count + 1,
            last_event=max(window.last_event or arrival.event_id, arrival.event_id),
        )
    return WindowDecision(EventOutcome.DEBOUNCED, kept)


def _throttled(spec: EventSpec, window: Window | None, arrival: Arrival) -> WindowDecision:
    if (said := spec.throttle) is None:
        raise ValueError("only throttle decides so")
    if window is None:
        kept = Window(arrival.new_window, arrival.at, arrival.at + said.per, 1, arrival.event_id)
        return WindowDecision(EventOutcome.STARTED, kept, (arrival.event_id,))
    if window.count < said.max:
        kept = replace(window, count=window.count + 1, last_event=arrival.event_id)
        return WindowDecision(EventOutcome.STARTED, kept, (arrival.event_id,))
    return WindowDecision(EventOutcome.THROTTLED, window)


def _collected(spec: EventSpec, window: Window | None, arrival: Arrival) -> WindowDecision:
    young = _still_young(spec, window, arrival.at) if window is not None else None
    collected = dict(young.collected) if young is not None else {}
    for place in arrival.places:
        collected[place] = Collected(arrival.event_id, arrival.at)
    if len(collected) == len(spec.wanted):
        events = tuple(collected[place].event_id for place in range(len(spec.wanted)))
        return WindowDecision(EventOutcome.STARTED, None, events)
    kept = Window(
        id=young.id if young is not None else arrival.new_window,
        opened_at=young.opened_at if young is not None else arrival.at,
        deadline_at=_first_too_old(spec, collected.values()),
        count=len(collected),
        last_event=arrival.event_id,
        collected=collected,
    )
    return WindowDecision(EventOutcome.COLLECTED, kept)


def _still_young(spec: EventSpec, window: Window, now: datetime) -> Window | None:
    within = spec.within or timedelta(0)
    young = {place: one for place, one in window.collected.items() if one.at + within > now}
    if not young:
        return None
    return replace(
        window, collected=young, count=len(young), deadline_at=_first_too_old(spec, young.values())
    )


def _first_too_old(spec: EventSpec, collected: Collection[Collected]) -> datetime:
    return min(one.at for one in collected) + (spec.within or timedelta(0))


def _awaited(spec: EventSpec, window: Window | None, arrival: Arrival) -> WindowDecision:
    if (said := spec.absence) is None:
        raise ValueError("only absence decides so")
    deadline = arrival.at + said.within
    if arrival.answers and spec.guards_silence:
        # What comes is waited for again from then on.
        return WindowDecision(
            EventOutcome.ANSWERED, Window(arrival.new_window, arrival.at, deadline, 1, arrival.event_id)
        )
    if arrival.answers:
        return WindowDecision(EventOutcome.ANSWERED, None)
    # Whatever is awaited already stays so: the first of several counts.
    kept = window or Window(arrival.new_window, arrival.at, deadline, 1, arrival.event_id)
    return WindowDecision(EventOutcome.AWAITED, kept)
