"""The effect of events and deadlines on the windows of event schedules.

A window is the state of a schedule for one value of its key, with a deadline. The caller locks its row, so
decisions about one window are serialised.

    debounce   opens with the first event, each event postpones the deadline, which starts one task
    throttle   opens with the first start; a new window opens after the deadline
    all_of     stores the latest event of each name, as long as it is recent enough
    absence    opens with the reference event; the awaited event closes it, the deadline starts a task
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from hetuflow_core.events.spec import EventSpec, Mode

# Longest chain of events emitted by tasks that events started.
DEEPEST_CHAIN: Final = 16
# Most tasks per minute that a schedule starts for events of such chains.
MOST_CHAINED: Final = 600
CHAIN_PERIOD: Final = timedelta(minutes=1)


class EventOutcome(StrEnum):
    """The effect of an event on a schedule."""

    STARTED = "started"
    # The event counts and may start a task later.
    DEBOUNCED = "debounced"
    COLLECTED = "collected"
    AWAITED = "awaited"
    # The event arrived in time, so no task starts.
    ANSWERED = "answered"
    # The event starts no task, with the reason.
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
    # None if no event opened the window.
    last_event: UUID | None = None
    # By index in `all_of`.
    collected: Mapping[int, Collected] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event that matches a schedule."""

    event_id: UUID
    # The indexes of `wanted` that the event matches.
    places: frozenset[int]
    # Whether it is the awaited event of an absence.
    answers: bool
    at: datetime
    # The id of a window that this event may open.
    new_window: UUID


@dataclass(frozen=True, slots=True)
class WindowDecision:
    outcome: EventOutcome
    # The new state of the window; None: no window.
    window: Window | None
    # The events of the started task: those of `all_of` in order, or the single event.
    starts: tuple[UUID, ...] = ()
    # A window whose expired deadline was not handled yet: it starts a task first.
    overdue: Window | None = None


def decide(spec: EventSpec, window: Window | None, arrival: Arrival) -> WindowDecision:
    """Apply an event to the window of its key, after applying an expired deadline."""
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
    """Return the window after its deadline, and whether a task starts."""
    if window.deadline_at > now:
        return window, False
    match spec.mode:
        case Mode.DEBOUNCE | Mode.ABSENCE:
            return None, True
        case Mode.ALL_OF:
            return _without_expired(spec, window, now), False
        case _:
            return None, False


def first_watch(spec: EventSpec, new_window: UUID, now: datetime) -> Window | None:
    """Return the first window of a schedule that guards silence; with a key, windows open with events."""
    if spec.absence is None or not spec.guards_silence or spec.key is not None:
        return None
    return Window(new_window, now, now + spec.absence.within, count=0)


def may_chain(depth: int, started: int) -> str | None:
    """Return why an event emitted by a task starts no task: its chain is too long, or the rate too high."""
    if depth > DEEPEST_CHAIN:
        return f"the chain of events emitted by tasks that events started is longer than {DEEPEST_CHAIN}"
    if depth > 0 and started >= MOST_CHAINED:
        return (
            f"events emitted by tasks that events started exceed {MOST_CHAINED} per minute for this schedule"
        )
    return None


def _debounced(spec: EventSpec, window: Window | None, arrival: Arrival) -> WindowDecision:
    if (debounce := spec.debounce) is None:
        raise ValueError("the schedule has no debounce")
    opened_at = window.opened_at if window is not None else arrival.at
    latest = opened_at + debounce.at_most if debounce.at_most is not None else None
    deadline = arrival.at + debounce.quiet
    if latest is not None:
        deadline = min(deadline, latest)
    if window is None:
        kept = Window(arrival.new_window, opened_at, deadline, 1, arrival.event_id)
    else:
        # Never earlier: if two events are handled in the wrong order, the later one counts.
        deadline = max(deadline, window.deadline_at)
        kept = replace(
            window,
            deadline_at=deadline if latest is None else min(deadline, latest),
            count=window.count + 1,
            last_event=max(window.last_event or arrival.event_id, arrival.event_id),
        )
    return WindowDecision(EventOutcome.DEBOUNCED, kept)


def _throttled(spec: EventSpec, window: Window | None, arrival: Arrival) -> WindowDecision:
    if (throttle := spec.throttle) is None:
        raise ValueError("the schedule has no throttle")
    if window is None:
        kept = Window(arrival.new_window, arrival.at, arrival.at + throttle.per, 1, arrival.event_id)
        return WindowDecision(EventOutcome.STARTED, kept, (arrival.event_id,))
    if window.count < throttle.max:
        kept = replace(window, count=window.count + 1, last_event=arrival.event_id)
        return WindowDecision(EventOutcome.STARTED, kept, (arrival.event_id,))
    return WindowDecision(EventOutcome.THROTTLED, window)


def _collected(spec: EventSpec, window: Window | None, arrival: Arrival) -> WindowDecision:
    recent = _without_expired(spec, window, arrival.at) if window is not None else None
    collected = dict(recent.collected) if recent is not None else {}
    for place in arrival.places:
        collected[place] = Collected(arrival.event_id, arrival.at)
    if len(collected) == len(spec.wanted):
        events = tuple(collected[place].event_id for place in range(len(spec.wanted)))
        return WindowDecision(EventOutcome.STARTED, None, events)
    kept = Window(
        id=recent.id if recent is not None else arrival.new_window,
        opened_at=recent.opened_at if recent is not None else arrival.at,
        deadline_at=_first_expiry(spec, collected.values()),
        count=len(collected),
        last_event=arrival.event_id,
        collected=collected,
    )
    return WindowDecision(EventOutcome.COLLECTED, kept)


def _without_expired(spec: EventSpec, window: Window, now: datetime) -> Window | None:
    within = spec.within or timedelta(0)
    recent = {place: event for place, event in window.collected.items() if event.at + within > now}
    if not recent:
        return None
    return replace(
        window, collected=recent, count=len(recent), deadline_at=_first_expiry(spec, recent.values())
    )


def _first_expiry(spec: EventSpec, collected: Collection[Collected]) -> datetime:
    return min(event.at for event in collected) + (spec.within or timedelta(0))


def _awaited(spec: EventSpec, window: Window | None, arrival: Arrival) -> WindowDecision:
    if (absence := spec.absence) is None:
        raise ValueError("the schedule has no absence")
    deadline = arrival.at + absence.within
    if arrival.answers and spec.guards_silence:
        # The next event is awaited from now on.
        return WindowDecision(
            EventOutcome.ANSWERED, Window(arrival.new_window, arrival.at, deadline, 1, arrival.event_id)
        )
    if arrival.answers:
        return WindowDecision(EventOutcome.ANSWERED, None)
    # An open window stays: the first of several reference events counts.
    kept = window or Window(arrival.new_window, arrival.at, deadline, 1, arrival.event_id)
    return WindowDecision(EventOutcome.AWAITED, kept)
