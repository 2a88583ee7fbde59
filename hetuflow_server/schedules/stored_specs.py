"""The fires of stored schedules: their arithmetic with the calendars they name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
from cachetools import LRUCache

from hetuflow_core.calendar import DaySet
from hetuflow_core.jobfile import schedule_from_document
from hetuflow_core.schedule import CalendarUse, ScheduleSpec, occurrences, skip_reason
from hetuflow_core.schedule.planning import Fires

_MOST_SPECS: Final = 10_000
_NO_CALENDAR: Final = CalendarUse()


def fires_of(spec: ScheduleSpec, calendars: Mapping[str, DaySet]) -> Fires:
    """`calendars` are those of the schedule's namespace, by name."""
    if not spec.blackout and spec.calendar == _NO_CALENDAR:
        return Fires(after=partial(occurrences, spec), excluded=_never)
    return Fires(
        after=partial(occurrences, spec),
        excluded=lambda fire_at: skip_reason(spec, calendars, fire_at) is not None,
    )


def names_calendars(spec: ScheduleSpec) -> bool:
    return spec.calendar != _NO_CALENDAR


def _never(_: datetime) -> bool:
    return False


class StoredSpecs:
    """Schedules as they are stored, read once: many of them say the same under different names."""

    def __init__(self) -> None:
        self._known: LRUCache[str, ScheduleSpec] = LRUCache(_MOST_SPECS)

    def get(self, text: str) -> ScheduleSpec:
        """Return what a stored schedule says; `text` is its document without its name, as JSON."""
        if (known := self._known.get(text)) is not None:
            return known
        spec = schedule_from_document({**msgspec.json.decode(text), "name": "schedule"})
        self._known[text] = spec
        return spec
