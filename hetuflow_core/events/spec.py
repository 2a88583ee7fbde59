"""The `event` of a schedule; the job file readers validate and create it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Any

import msgspec

from hetuflow_core.durations import format_duration


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Selects events by name or pattern and by a filter expression."""

    name: str
    filter: str | None = None


class Debounce(msgspec.Struct, frozen=True, kw_only=True):
    """Combines many events into one task: `quiet` after the last, and at most `at_most` after the first."""

    quiet: timedelta
    at_most: timedelta | None = None


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """At most `max` tasks in a period that begins with the first; further events start no task."""

    max: int = 1
    per: timedelta


class Absence(msgspec.Struct, frozen=True, kw_only=True):
    """Starts a task if an event does not arrive in time."""

    wanted: Wanted
    within: timedelta


class Mode(StrEnum):
    EACH = "each"
    DEBOUNCE = "debounce"
    THROTTLE = "throttle"
    ALL_OF = "all_of"
    ABSENCE = "absence"


class EventSpec(msgspec.Struct, frozen=True, kw_only=True):
    # The event; or the events of `all_of`; or the event from which an absence is measured, if any.
    wanted: tuple[Wanted, ...] = ()
    # An expression: each of its values has a separate window.
    key: str | None = None
    # Templates over the event, merged over the parameters of the schedule and the job.
    params: dict[str, Any] = {}
    debounce: Debounce | None = None
    throttle: Throttle | None = None
    # Longest time between the events of `all_of`.
    within: timedelta | None = None
    absence: Absence | None = None

    @property
    def mode(self) -> Mode:
        if self.within is not None:
            return Mode.ALL_OF
        if self.absence is not None:
            return Mode.ABSENCE
        if self.debounce is not None:
            return Mode.DEBOUNCE
        return Mode.EACH if self.throttle is None else Mode.THROTTLE

    @property
    def names(self) -> frozenset[str]:
        """The names and patterns of all events that the schedule uses."""
        absent = [self.absence.wanted.name] if self.absence is not None else []
        return frozenset([*(event.name for event in self.wanted), *absent])

    @property
    def guards_silence(self) -> bool:
        """Whether the absence is measured from the last awaited event, not from another event."""
        return self.absence is not None and not self.wanted


def describe(spec: EventSpec) -> str:
    """Describe when the schedule fires."""
    names = " and ".join(event.name for event in spec.wanted)
    filtered = " that pass the filter" if any(event.filter for event in spec.wanted) else ""
    if spec.absence is not None:
        within, absent = format_duration(spec.absence.within), spec.absence.wanted.name
        return f"when no {absent} arrives within {within}" + (f" of {names}" if names else " of the last")
    if spec.within is not None:
        return f"when {names} have all arrived within {format_duration(spec.within)}"
    if spec.debounce is not None:
        return f"{format_duration(spec.debounce.quiet)} after the last of events {names}{filtered}"
    if spec.throttle is not None:
        per = format_duration(spec.throttle.per)
        return f"on events {names}{filtered}, at most {spec.throttle.max} in {per}"
    return f"on each event {names}" + (" that passes the filter" if filtered else "")
