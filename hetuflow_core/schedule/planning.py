"""Decide which fires of a schedule are generated next, and the progress of the schedule after them.

    cursor ──────── misfires ────────┬──── on time ────┬──── ahead ────┐
                                     now - grace       now             now + horizon

All fires up to the cursor are done. A fire that is late by more than the grace period is a misfire. The
policy decides which misfires are made up for: none, the latest, or the latest N. `decided_until` stores the
decision, so that batches and crashes do not change the number of misfires that are made up for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from hetuflow_core.schedule.misfires import Misfire, MisfirePolicy
from hetuflow_core.schedule.spec import ScheduleSpec

_MOMENT: Final = timedelta(microseconds=1)
# Misfires are searched from the latest backwards, in spans of this length, then doubled each time.
_FIRST_SPAN: Final = timedelta(minutes=10)
# A calendar may exclude nearly all fires, so the search for the others is limited.
_MOST_MISFIRES_EXAMINED: Final = 50_000
_MOST_FIRES_EXAMINED: Final = 500


@dataclass(frozen=True, slots=True)
class Fires:
    """The fires of a schedule."""

    # Fires strictly after an instant, in order.
    after: Callable[[datetime], Iterator[datetime]]
    # Whether a calendar or a blackout excludes a fire.
    excluded: Callable[[datetime], bool]


@dataclass(frozen=True, slots=True)
class ScheduleProgress:
    """The progress of a schedule."""

    # Fires up to here are generated or given up.
    cursor: datetime
    # Misfires up to here are decided: misfires after the cursor are made up for.
    decided_until: datetime | None
    fired_count: int


@dataclass(frozen=True, slots=True)
class Planned:
    fires: tuple[datetime, ...]
    progress: ScheduleProgress
    # No fire between the cursor and this time; None if the schedule does not fire again.
    next_fire_at: datetime | None
    # Misfires from here up to `missed_until` are given up; None without misfires.
    missed_from: datetime | None = None
    missed_until: datetime | None = None


def plan(
    spec: ScheduleSpec,
    progress: ScheduleProgress,
    source: Fires,
    *,
    now: datetime,
    horizon: timedelta,
    room: int,
) -> Planned:
    """Return up to `room` fires until `now + horizon`, and the progress after them."""
    if room < 1:
        raise ValueError("a plan needs room for at least one fire")
    left = None if spec.max_count is None else max(0, spec.max_count - progress.fired_count)
    until, late_before = now + horizon, now - spec.misfire_grace
    start, fires, decided = progress.cursor, list[datetime](), progress.decided_until
    missed_from = missed_until = None
    if decided is not None and decided > start:
        fires = _take(source, start, min(decided, until), _least(room, left))
        if len(fires) == _least(room, left):
            return _planned(progress, fires, fires[-1] if fires else start, decided, source, left)
        start = decided
    if start < late_before - _MOMENT:
        kept_from = _kept_from(source, start, late_before, _most_made_up_for(spec.misfire))
        first_missed = next(source.after(start), None)
        if first_missed is not None and first_missed < kept_from:
            missed_from, missed_until = first_missed, kept_from - _MOMENT
        start, decided = kept_from - _MOMENT, late_before - _MOMENT
    most = _least(room, left)
    fires += _take(source, start, until, most - len(fires))
    cursor = until if len(fires) < most else max(start, fires[-1] if fires else start)
    planned = _planned(progress, fires, max(cursor, progress.cursor), decided, source, left)
    return Planned(planned.fires, planned.progress, planned.next_fire_at, missed_from, missed_until)


def first_fire(spec: ScheduleSpec, source: Fires, cursor: datetime, fired: int) -> datetime | None:
    """Return the first fire after the cursor that is not generated yet."""
    if spec.max_count is not None and fired >= spec.max_count:
        return None
    return _next_fire(source, cursor)


def _most_made_up_for(misfire: Misfire) -> int:
    return {MisfirePolicy.SKIP: 0, MisfirePolicy.LATEST: 1, MisfirePolicy.ALL: misfire.cap}[misfire.policy]


def _planned(
    before: ScheduleProgress,
    fires: list[datetime],
    cursor: datetime,
    decided: datetime | None,
    source: Fires,
    left: int | None,
) -> Planned:
    pending = decided if decided is not None and decided > cursor else None
    progress = ScheduleProgress(cursor, pending, before.fired_count + len(fires))
    exhausted = left is not None and len(fires) >= left
    return Planned(tuple(fires), progress, None if exhausted else _next_fire(source, cursor))


def _kept_from(source: Fires, start: datetime, late_before: datetime, most: int) -> datetime:
    """Return the earliest misfire that is made up for, or `late_before` if none is."""
    if most == 0:
        return late_before
    span = _FIRST_SPAN
    while True:
        beginning = max(start, late_before - span)
        latest: deque[datetime] = deque(maxlen=most)
        examined = 0
        for fire in source.after(beginning):
            if fire >= late_before:
                break
            examined += 1
            if not source.excluded(fire):
                latest.append(fire)
        if len(latest) == most or beginning == start or examined > _MOST_MISFIRES_EXAMINED:
            return latest[0] if latest else late_before
        span *= 2


def _take(source: Fires, after: datetime, until: datetime, most: int) -> list[datetime]:
    fires: list[datetime] = []
    if most > 0:
        for fire in source.after(after):
            if fire > until:
                break
            if not source.excluded(fire):
                fires.append(fire)
                if len(fires) == most:
                    break
    return fires


def _next_fire(source: Fires, after: datetime) -> datetime | None:
    fire = None
    for fire in islice(source.after(after), _MOST_FIRES_EXAMINED):
        if not source.excluded(fire):
            break
    return fire


def _least(room: int, left: int | None) -> int:
    return room if left is None else min(room, left)
