"""Jobs that a schedule fires after must exist, and are other jobs than its own."""

from __future__ import annotations

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_server.jobs.references import NamedJobs
from hetuflow_server.postgres.database import Connection


async def refuse_unknown_upstreams(
    connection: Connection, namespace_id: int, job: str, spec: ScheduleSpec, path: str
) -> None:
    """Refuse a schedule that is to fire after jobs that are not there."""
    faults = await upstream_faults(NamedJobs(connection, namespace_id), f"{path}." if path else "", job, spec)
    if faults:
        raise Invalid("The schedule cannot be accepted.", code="schedule.invalid", faults=faults)


async def upstream_faults(jobs: NamedJobs, path: str, job: str, schedule: ScheduleSpec) -> list[Fault]:
    faults = []
    for name in () if schedule.flow is None else schedule.flow.after:
        if name == job:
            faults.append(Fault(f"{path}flow.after", f'"{name}" cannot run after itself: remove it.'))
        elif await jobs.get(name) is None:
            faults.append(Fault(f"{path}flow.after", await jobs.missing(name)))
    return faults
