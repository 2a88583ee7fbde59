"""Which schedules want which events: by name through an index, then by their filters."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec
import structlog

from hetuflow_core.errors import Invalid, TooLarge
from hetuflow_core.events import EXPRESSION_NAMES, EventSpec, Wanted, patterns_of
from hetuflow_core.expressions import Values, calculation, condition
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_server.events.matching_store import TakenEvent, WaitingSchedule
from hetuflow_server.schedules.stored_specs import StoredSpecs

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.events")

# The event loop has its turn after so many events.
_BREATH: Final = 20
_LONGEST_KEY: Final = 512


@dataclass(frozen=True, slots=True)
class EventSchedule:
    """A schedule that waits for events, read."""

    row: WaitingSchedule
    spec: ScheduleSpec
    event: EventSpec


@dataclass(frozen=True, slots=True)
class Match:
    event: TakenEvent
    waiting: EventSchedule
    # In which places of `wanted` it counts, and whether it is what must not be absent.
    places: frozenset[int]
    answers: bool
    # JSON; empty without a key.
    key: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An event that a schedule may want, and whose filter or key cannot be told."""

    event: TakenEvent
    waiting: EventSchedule
    detail: str


def wanted_patterns(events: Iterable[TakenEvent]) -> set[tuple[int, str]]:
    """By what schedules that want these events are found: namespace and pattern."""
    names = {(event.namespace_id, event.name) for event in events}
    return {(namespace_id, pattern) for namespace_id, name in names for pattern in patterns_of(name)}


class EventMatching:
    def __init__(self) -> None:
        self._specs = StoredSpecs()

    def read(self, rows: Iterable[WaitingSchedule]) -> list[EventSchedule]:
        """Read stored schedules; what cannot be read is told and left out."""
        read = []
        for row in rows:
            try:
                spec = self._specs.get(row.spec)
            except Invalid as error:
                detail = "; ".join(map(str, error.faults)) or error.message
                log.warning(
                    "A stored schedule cannot be read.", schedule=str(row.id), name=row.name, detail=detail
                )
                continue
            if spec.event is not None:
                read.append(EventSchedule(row, spec, spec.event))
        return read

    async def match(
        self, events: Sequence[TakenEvent], schedules: Collection[EventSchedule]
    ) -> tuple[list[Match], list[Mismatch]]:
        """Compare each event with the schedules its name leads to."""
        by_name: defaultdict[tuple[int, str], list[EventSchedule]] = defaultdict(list)
        for waiting in schedules:
            for pattern in waiting.event.names:
                by_name[waiting.row.namespace_id, pattern].append(waiting)
        matches: list[Match] = []
        mismatches: list[Mismatch] = []
        for number, event in enumerate(events, start=1):
            patterns = patterns_of(event.name)
            found = {
                waiting.row.id: waiting
                for pattern in patterns
                for waiting in by_name.get((event.namespace_id, pattern), ())
            }
            if found:
                _compare(event, frozenset(patterns), found.values(), matches, mismatches)
            if number % _BREATH == 0:
                await asyncio.sleep(0)
        return matches, mismatches


def _compare(
    event: TakenEvent,
    patterns: frozenset[str],
    schedules: Iterable[EventSchedule],
    matches: list[Match],
    mismatches: list[Mismatch],
) -> None:
    look = _EventView(event, patterns)
    for waiting in schedules:
        spec = waiting.event
        look.problems.clear()
        places = frozenset(place for place, one in enumerate(spec.wanted) if look.is_wanted(one))
        answers = spec.absence is not None and look.is_wanted(spec.absence.wanted)
        key = look.key(spec.key) if places or answers else None
        if key is not None:
            matches.append(Match(event, waiting, places, answers, key))
        elif look.problems:
            mismatches.append(Mismatch(event, waiting, look.problems[0]))


class _EventView:
    """One event as expressions see it."""

    def __init__(self, event: TakenEvent, patterns: frozenset[str]) -> None:
        self._event = event
        self._patterns = patterns
        self._values: Values | None = None
        # What could not be told of it.
        self.problems: list[str] = []

    def is_wanted(self, wanted: Wanted) -> bool:
        if wanted.name not in self._patterns:
            return False
        if wanted.filter is None:
            return True
        try:
            return condition(wanted.filter, EXPRESSION_NAMES).holds(self._given())
        except (Invalid, TooLarge) as error:
            self.problems.append(error.message)
            return False

    def key(self, source: str | None) -> str | None:
        """The value of a key as JSON, or None when it has none."""
        if source is None:
            return ""
        try:
            value = calculation(source, EXPRESSION_NAMES).result(self._given())
        except (Invalid, TooLarge) as error:
            self.problems.append(error.message)
            return None
        encoded = msgspec.json.encode(value, order="sorted")
        if len(encoded) > _LONGEST_KEY:
            return blake2b(encoded, digest_size=32).hexdigest()
        return encoded.decode()

    def _given(self) -> Values:
        if self._values is None:
            self._values = Values({"payload": self._event.payload, "event": described(self._event)})
        return self._values


def described(event: TakenEvent) -> dict[str, Any]:
    """An event, beside its payload, as expressions and templates see it."""
    return {
        "id": str(event.id),
        "name": event.name,
        "key": event.key,
        "created_at": event.created_at.isoformat(),
    }
