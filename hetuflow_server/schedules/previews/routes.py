"""`/jobs/{id}/next` and `/schedules/{id}/next`."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from litestar import Router, get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.schedules import ComingFires
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules.previews.service import SchedulePreviews

_NOT_FOUND = problems(HTTPStatus.NOT_FOUND)
_Count = Annotated[int, QueryParameter(ge=1, le=1000, description="How many fires that are not skipped.")]
_After = Annotated[datetime | None, QueryParameter(description="Only what comes after it; now if not given.")]


@get(
    "/jobs/{job_id:uuid}/next",
    operation_id="list_coming_fires_of_job",
    opt=needs(Permission.SCHEDULES_READ),
    responses=_NOT_FOUND,
)
async def coming_fires_of_job(
    job_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    schedule_previews: NamedDependency[SchedulePreviews],
    count: _Count = 10,
    after: _After = None,
) -> ComingFires:
    """List what comes of all schedules of a job, with the reason for every fire that is skipped."""
    return ComingFires(await schedule_previews.of_job(context, job_id, count=count, after=after))


@get(
    "/schedules/{schedule_id:uuid}/next",
    operation_id="list_coming_fires",
    opt=needs(Permission.SCHEDULES_READ),
    responses=_NOT_FOUND,
)
async def coming_fires_of_schedule(
    schedule_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    schedule_previews: NamedDependency[SchedulePreviews],
    count: _Count = 10,
    after: _After = None,
) -> ComingFires:
    """List what comes of a schedule, with the reason for every fire that is skipped."""
    found = await schedule_previews.of_schedule(context, schedule_id, count=count, after=after)
    return ComingFires(found)


schedule_previews_router = Router(
    "/api/v1", route_handlers=[coming_fires_of_job, coming_fires_of_schedule], tags=["schedules"]
)
