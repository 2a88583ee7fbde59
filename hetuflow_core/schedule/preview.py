"""What comes of a schedule, for people: so many fires, and between them what is skipped and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from hetuflow_core.schedule.upcoming import Skip, UpcomingFire

# A calendar may leave out nearly everything; nobody waits for a look at more fires than these.
MOST_LOOKED_AT: Final = 20_000


@dataclass(frozen=True, slots=True)
class Previewed:
    """A fire, or a run of fires that are all skipped for the same reason."""

    fire_at: datetime
    due_at: datetime
    last_fire_at: datetime
    times: int
    skip: Skip | None


def preview(
    comings: Iterable[UpcomingFire], count: int, most_looked_at: int = MOST_LOOKED_AT
) -> list[Previewed]:
    """The next `count` fires that are not skipped, or as many as there are among those looked at."""
    found: list[Previewed] = []
    fires = 0
    for looked_at, coming in enumerate(comings, start=1):
        if coming.skip is not None and found and found[-1].skip == coming.skip:
            found[-1] = replace(found[-1], last_fire_at=coming.fire_at, times=found[-1].times + 1)
        else:
            found.append(Previewed(coming.fire_at, coming.due_at, coming.fire_at, 1, coming.skip))
        fires += coming.skip is None
        if fires == count or looked_at == most_looked_at:
            break
    return found
