"""What is previewed of schedules, in the words of the API; light: commands use it without a server."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from hetuflow_core.resources.schedules import ComingFire
from hetuflow_core.schedule import ScheduleSpec, zone
from hetuflow_core.schedule.preview import Previewed


def shown(spec: ScheduleSpec, previewed: Iterable[Previewed], schedule_id: UUID | None) -> list[ComingFire]:
    """What is previewed in the words of the API."""
    here = zone(spec.timezone)
    return [
        ComingFire(
            schedule_id=schedule_id,
            schedule=spec.name,
            fire_at=one.fire_at,
            due_at=one.due_at,
            local=one.fire_at.astimezone(here).isoformat(),
            timezone=spec.timezone,
            skipped=one.skip.message if one.skip else None,
            skip_code=one.skip.code.value if one.skip else None,
            times=one.times,
            last_fire_at=one.last_fire_at,
        )
        for one in previewed
    ]
