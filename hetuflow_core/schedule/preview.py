"""Preview of a schedule: the next fires, and the skipped fires between them with their reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from hetuflow_core.schedule.upcoming import Skip, UpcomingFire

# A calendar may exclude nearly all fires, so the search is limited.
MOST_EXAMINED: Final = 20_000


@dataclass(frozen=True, slots=True)
class Previewed:
    """A fire, or consecutive fires that are skipped for the same reason."""

    fire_at: datetime
    due_at: datetime
    last_fire_at: datetime
    times: int
    skip: Skip | None


def preview(
    comings: Iterable[UpcomingFire], count: int, most_examined: int = MOST_EXAMINED
) -> list[Previewed]:
    """Return the next `count` fires that are not skipped, or fewer if the search limit is reached."""
    previewed: list[Previewed] = []
    fires = 0
    for examined, coming in enumerate(comings, start=1):
        if coming.skip is not None and previewed and (last := previewed[-1]).skip == coming.skip:
            previewed[-1] = replace(last, last_fire_at=coming.fire_at, times=last.times + 1)
        else:
            previewed.append(Previewed(coming.fire_at, coming.due_at, coming.fire_at, 1, coming.skip))
        fires += coming.skip is None
        if fires == count or examined == most_examined:
            break
    return previewed
