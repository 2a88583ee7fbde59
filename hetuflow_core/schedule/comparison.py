"""Two ways a schedule may go on, compared fire by fire: pure, for whoever plans to change one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import groupby

from hetuflow_core.schedule.upcoming import UpcomingFire

# So many fires of each kind are named, the others counted.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Compared:
    """Which fires come and go up to `until`; all others are the same."""

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
    """Compare what came with what will come, in the order of time, looking at `most` fires at most.

    Skipped ones count as looked at: a calendar may leave out nearly everything.
    """
    added: list[datetime] = []
    removed: list[datetime] = []
    counts = [0, 0]
    looked_at, reached = 0, until
    both = merge(_side(before, new=False), _side(after, new=True), key=lambda one: one[0])
    for fire_at, group in groupby(both, key=lambda one: one[0]):
        sides = list(group)
        if fire_at > until:
            break
        looked_at += len(sides)
        if looked_at > most:
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
