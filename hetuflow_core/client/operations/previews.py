"""The REST calls about what comes of schedules."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from hetuflow_core.client.calls import get, segment
from hetuflow_core.client.exchange import Plan
from hetuflow_core.resources.schedules import ComingFire, ComingFires


def coming_fires_of_job(
    job_id: UUID | str, *, count: int = 10, after: datetime | None = None
) -> Plan[list[ComingFire]]:
    """The next fires of all schedules of a job, and what is skipped between them and why."""
    query = {"count": count, "after": after}
    return (yield from get(f"/jobs/{segment(job_id)}/next", ComingFires, query=query)).items


def coming_fires(
    schedule_id: UUID | str, *, count: int = 10, after: datetime | None = None
) -> Plan[list[ComingFire]]:
    """The next fires of a schedule, and what is skipped between them and why."""
    query = {"count": count, "after": after}
    return (yield from get(f"/schedules/{segment(schedule_id)}/next", ComingFires, query=query)).items
