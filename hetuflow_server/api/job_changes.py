"""What enables, disables and deletes jobs, part of `/jobs`."""

from __future__ import annotations

from http import HTTPStatus
from uuid import UUID

from litestar import delete, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from hetuflow_core.permissions import Permission
from hetuflow_core.resources import Job
from hetuflow_server.http.guarding import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.services.applying import Applying
from hetuflow_server.services.principals import Principal
from hetuflow_server.services.schedules import Schedules

_NOT_FOUND = problems(HTTPStatus.NOT_FOUND)


@post(
    "/jobs/{job_id:uuid}/enable",
    status_code=200,
    operation_id="enable_job",
    opt=needs(Permission.JOBS_OPERATE),
    responses=_NOT_FOUND,
)
async def enable_job(
    job_id: FromPath[UUID],
    principal: NamedDependency[Principal],
    schedules: NamedDependency[Schedules],
    applying: NamedDependency[Applying],
) -> Job:
    """Let a job's schedules fire again, from now on, and people run it."""
    await schedules.enable_job(principal, job_id, enabled=True)
    return await applying.job(principal, job_id)


@post(
    "/jobs/{job_id:uuid}/disable",
    status_code=200,
    operation_id="disable_job",
    opt=needs(Permission.JOBS_OPERATE),
    responses=_NOT_FOUND,
)
async def disable_job(
    job_id: FromPath[UUID],
    principal: NamedDependency[Principal],
    schedules: NamedDependency[Schedules],
    applying: NamedDependency[Applying],
) -> Job:
    """Let nothing new of a job begin; what has been asked for or fired goes on."""
    await schedules.enable_job(principal, job_id, enabled=False)
    return await applying.job(principal, job_id)


@delete(
    "/jobs/{job_id:uuid}", operation_id="delete_job", opt=needs(Permission.JOBS_WRITE), responses=_NOT_FOUND
)
async def delete_job(
    job_id: FromPath[UUID],
    principal: NamedDependency[Principal],
    schedules: NamedDependency[Schedules],
) -> None:
    """Delete a job and its schedules. Its tasks stay, and those that have not ended go on."""
    await schedules.delete_job(principal, job_id)
