"""What a schedule says under `event`; `hetuflow_core/jobfile/readers/events.py` makes and checks it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Any

import msgspec

from hetuflow_core.durations import format_duration


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """An event that counts: by its name or pattern, and by what an expression says of it."""

    name: str
    filter: str | None = None


class Debounce(msgspec.Struct, frozen=True, kw_only=True):
    """Once for many: so long after the last one, and at most so long after the first."""

    quiet: timedelta
    at_most: timedelta | None = None


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """No more than so many in a time that begins with the first of them; the others start nothing."""

    max: int = 1
    per: timedelta


class Absence(msgspec.Struct, frozen=True, kw_only=True):
    """What must come within a time, or else a task starts."""

    wanted: Wanted
    within: timedelta


class Mode(StrEnum):
    EACH = "each"
    DEBOUNCE = "debounce"
    THROTTLE = "throttle"
    ALL_OF = "all_of"
    ABSENCE = "absence"


class EventSpec(msgspec.Struct, frozen=True, kw_only=True):
    # One; or those of `all_of`; or, of an absence, what it counts from, if anything.
    wanted: tuple[Wanted, ...] = ()
    # An expression: each of its values is counted, collected and waited for by itself.
    key: str | None = None
    # Values with templates over the event, on top of the schedule's and the job's.
    params: dict[str, Any] = {}
    debounce: Debounce | None = None
    throttle: Throttle | None = None
    # Of `all_of`: how far apart they may come.
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
        """The names and patterns by which events find it."""
        absent = [self.absence.wanted.name] if self.absence is not None else []
        return frozenset([*(one.name for one in self.wanted), *absent])

    @property
    def guards_silence(self) -> bool:
        """Whether it counts from itself and its last event, not from another one."""
        return self.absence is not None and not self.wanted


def describe(spec: EventSpec) -> str:
    """When it fires, in a few words."""
    names = " and ".join(one.name for one in spec.wanted)
    filtered = " that pass the filter" if any(one.filter for one in spec.wanted) else ""
    if spec.absence is not None:
        within, absent = format_duration(spec.absence.within), spec.absence.wanted.name
        return f"when no {absent} comes within {within}" + (f" of {names}" if names else " of the last")
    if spec.within is not None:
        return f"when {names} have all come within {format_duration(spec.within)}"
    if spec.debounce is not None:
        return f"{format_duration(spec.debounce.quiet)} after the last of events {names}{filtered}"
    if spec.throttle is not None:
        per = format_duration(spec.throttle.per)
        return f"on events {names}{filtered}, at most {spec.throttle.max} in {per}"
    return f"on each event {names}" + (" that passes the filter" if filtered else "")
