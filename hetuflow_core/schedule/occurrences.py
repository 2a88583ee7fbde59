"""The instants of a schedule, before calendars, blackouts and counts are applied.

Wall-clock times are converted to instants for each period of constant offset. Fixed hours follow the `dst` of
the schedule. Times in a gap fire once at the first instant after the gap, or not at all. Of repeated times
the first, the last or both passes count. Hours with a wildcard or a step follow elapsed time: both passes
count, and times in a gap do not fire.
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
# A fifth Friday in February may be forty years away; the parser rejects expressions that never match.
_HORIZON_YEARS: Final = 48
# Many schedules share few expressions and zones, so chunks of instants are cached.
_FIRST_CHUNK, _LATER_CHUNK = 4, 32
_CHUNKS_KEPT: Final = 4096
# The time range of one chunk; rare schedules need only few fires.
_SPAN: Final = timedelta(days=400)
# Upper bound of any UTC offset and of any clock change.
_ANY_OFFSET: Final = timedelta(days=2)


def occurrences(spec: ScheduleSpec, after: datetime) -> Iterator[datetime]:
    """Yield all instants after `after` and within `start_at` and `end_at`, in UTC and in order."""
    for fire_at in unended_occurrences(spec, after):
        if spec.end_at is not None and fire_at > spec.end_at:
            return
        yield fire_at


def unended_occurrences(spec: ScheduleSpec, after: datetime) -> Iterator[datetime]:
    """Yield all instants after `after`, also beyond `end_at`."""
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
    """Return at most `size` of the next instants, and at least one if the horizon contains one."""
    expression, dst = parse_cron(cron), Dst(gap=gap, fold=fold)
    start = after.replace(tzinfo=None, microsecond=0) + _SECOND
    horizon = datetime(min(start.year + _HORIZON_YEARS, LAST_YEAR), 1, 1)  # noqa: DTZ001 (naive UTC)
    while start < horizon:
        # Searching days is cheaper than computing clock changes: skip years without a matching day.
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
    """Yield naive UTC instants from `start` to `end`, exclusive."""
    fixed = not expression.follows_elapsed_time
    for stretch in stretches(timezone, start, end):
        offset = stretch.offset
        shifted = fixed and dst.gap is Gap.SHIFT and _falls_into_gap(expression, stretch.change)
        if shifted:
            yield stretch.start
        excluded = _excluded_passes(timezone, stretch.start.year, dst.fold) if fixed else ()
        for wall in wall_times(expression, stretch.start + offset, stretch.end + offset):
            instant = wall - offset
            if shifted and instant == stretch.start:
                continue
            if not any(begin <= instant < finish for begin, finish in excluded):
                yield instant


def _falls_into_gap(expression: CronExpression, change: ClockChange | None) -> bool:
    if change is None or change.after <= change.before:
        return False
    return any(True for _ in wall_times(expression, change.at + change.before, change.at + change.after))


@lru_cache(maxsize=_CHUNKS_KEPT)
def _excluded_passes(timezone: str, year: int, fold: Fold) -> tuple[tuple[datetime, datetime], ...]:
    """Return the passes of repeated time that do not count, including passes across the end of a year."""
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
