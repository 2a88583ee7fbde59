"""Compare the fires of a schedule before and after a change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import groupby

from hetuflow_core.schedule.upcoming import UpcomingFire

# Number of fires of each kind that are listed; the others are counted.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Compared:
    """Added and removed fires up to `until`; all other fires are equal."""

    added: int
    removed: int
    first_added: tuple[datetime, ...]
    first_removed: tuple[datetime, ...]
    until: datetime

    @property
    def same(self) -> bool:
        return not (self.added or self.removed)


def compared(
    before: Iterable[UpcomingFire], after: Iterable[UpcomingFire], until: datetime, most: int
) -> Compared:
    """Compare two sequences of fires in the order of time; examine at most `most` fires.

    Skipped fires count as well, because a calendar may exclude nearly all fires.
    """
    added: list[datetime] = []
    removed: list[datetime] = []
    counts = [0, 0]
    examined, reached = 0, until
    both = merge(_side(before, new=False), _side(after, new=True), key=lambda fire: fire[0])
    for fire_at, group in groupby(both, key=lambda fire: fire[0]):
        sides = list(group)
        if fire_at > until:
            break
        examined += len(sides)
        if examined > most:
            reached = fire_at
            break
        fires = [new for _, new, fires in sides if fires]
        if len(set(fires)) == 1:
            counts[fires[0]] += 1
            (added if fires[0] else removed).append(fire_at)
    return Compared(counts[1], counts[0], tuple(added[:NAMED]), tuple(removed[:NAMED]), reached)


def _side(comings: Iterable[UpcomingFire], *, new: bool) -> Iterator[tuple[datetime, bool, bool]]:
    for coming in comings:
        yield coming.fire_at, new, coming.skip is None
