"""When a schedule fires: the instants it names, before calendars, blackouts and counts have their say.

Wall-clock times become instants stretch by stretch of constant offset. Fixed hours follow the `dst` of the
schedule: what falls into a gap fires at the first instant after it (once, however many times fall into it) or
not at all, and of a stretch of time that comes twice the first, the last or both passes count. Hours with a
wildcard or a step follow elapsed time: both passes, and nothing for a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from hetuflow_core.schedule.clock_changes import Dst, Fold, Gap
from hetuflow_core.schedule.cron_syntax import CronExpression, parse_cron
from hetuflow_core.schedule.wall_clock import matching_days, wall_times
from hetuflow_core.schedule.zones import LAST_YEAR, ClockChange, changes, stretches

if TYPE_CHECKING:  # schedules check with this module that they can fire
    from hetuflow_core.schedule.spec import ScheduleSpec

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_SECOND: Final = timedelta(seconds=1)
_NOTHING: Final = timedelta(0)
# A fifth Friday in February may be forty years away; what is further has been refused as impossible.
_HORIZON_YEARS: Final = 48
# Many schedules share few expressions and zones, and are asked for the same instants.
_FIRST_CHUNK, _LATER_CHUNK = 4, 32
_CHUNKS_KEPT: Final = 4096
# How far is looked ahead for a chunk: nobody asks for many fires of a schedule that hardly ever has one.
_SPAN: Final = timedelta(days=400)
# No clock is further from UTC, and no change of clocks moves it further.
_ANY_OFFSET: Final = timedelta(days=2)


def occurrences(spec: ScheduleSpec, after: datetime) -> Iterator[datetime]:
    """All instants strictly after `after` and within `start_at` and `end_at`: in UTC, in order, lazily."""
    for fire_at in unended_occurrences(spec, after):
        if spec.end_at is not None and fire_at > spec.end_at:
            return
        yield fire_at


def unended_occurrences(spec: ScheduleSpec, after: datetime) -> Iterator[datetime]:
    """The same, going on beyond `end_at`."""
    if spec.start_at is not None:
        after = max(after, spec.start_at - timedelta.resolution)
    if spec.cron is not None:
        return cron_occurrences(spec.cron, spec.timezone, spec.dst, after)
    if spec.every is not None:
        return _every(spec.every, spec.start_at or EPOCH, after)
    if spec.at is not None and spec.at > after:
        return iter((spec.at.astimezone(UTC),))
    return iter(())


def cron_occurrences(cron: str, timezone: str, dst: Dst, after: datetime) -> Iterator[datetime]:
    after, size = after.astimezone(UTC), _FIRST_CHUNK
    while chunk := _chunk(cron, timezone, dst.gap, dst.fold, after, size):
        yield from chunk
        after, size = chunk[-1], _LATER_CHUNK


@lru_cache(maxsize=_CHUNKS_KEPT)
def _chunk(
    cron: str, timezone: str, gap: Gap, fold: Fold, after: datetime, size: int
) -> tuple[datetime, ...]:
    """At most so many of the next instants, and at least one if there is one within the horizon."""
    expression, dst = parse_cron(cron), Dst(gap=gap, fold=fold)
    start = after.replace(tzinfo=None, microsecond=0) + _SECOND
    horizon = datetime(min(start.year + _HORIZON_YEARS, LAST_YEAR), 1, 1)  # noqa: DTZ001 (naive UTC)
    while start < horizon:
        # Looking for days costs less than looking for changes of clocks: pass over the years without any.
        first_day = next(matching_days(expression, (start - _ANY_OFFSET).date(), horizon.date()), None)
        if first_day is None:
            break
        start = max(start, datetime.combine(first_day, time.min) - _ANY_OFFSET)
        instants = islice(_instants(expression, timezone, dst, start, start + _SPAN), size)
        if chunk := tuple(instant.replace(tzinfo=UTC) for instant in instants):
            return chunk
        start += _SPAN
    return ()


def _instants(
    expression: CronExpression, timezone: str, dst: Dst, start: datetime, end: datetime
) -> Iterator[datetime]:
    """Naive, in UTC, from `start` up to `end`, which is not part of it."""
    fixed = not expression.follows_elapsed_time
    for stretch in stretches(timezone, start, end):
        offset = stretch.offset
        shifted = fixed and dst.gap is Gap.SHIFT and _falls_into_gap(expression, stretch.change)
        if shifted:
            yield stretch.start
        unwanted = _unwanted_passes(timezone, stretch.start.year, dst.fold) if fixed else ()
        for wall in wall_times(expression, stretch.start + offset, stretch.end + offset):
            instant = wall - offset
            if shifted and instant == stretch.start:
                continue
            if not any(begin <= instant < finish for begin, finish in unwanted):
                yield instant


def _falls_into_gap(expression: CronExpression, change: ClockChange | None) -> bool:
    if change is None or change.after <= change.before:
        return False
    return any(True for _ in wall_times(expression, change.at + change.before, change.at + change.after))


@lru_cache(maxsize=_CHUNKS_KEPT)
def _unwanted_passes(timezone: str, year: int, fold: Fold) -> tuple[tuple[datetime, datetime], ...]:
    """The passes of repeated time that do not count, also those that reach over an end of the year."""
    if fold is Fold.BOTH:
        return ()
    near = (
        *changes(timezone, year - 1)[-1:],
        *changes(timezone, year),
        *(changes(timezone, year + 1)[:1] if year < LAST_YEAR else ()),
    )
    return tuple(
        (change.at, change.at + repeated) if fold is Fold.FIRST else (change.at - repeated, change.at)
        for change in near
        if (repeated := change.before - change.after) > _NOTHING
    )


def _every(every: timedelta, anchor: datetime, after: datetime) -> Iterator[datetime]:
    passed = (after - anchor) // every
    fire_at = anchor.astimezone(UTC) + (passed + 1) * every
    while fire_at.year < LAST_YEAR:
        yield fire_at
        fire_at += every
