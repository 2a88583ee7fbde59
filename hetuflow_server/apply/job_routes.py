"""What creates, changes, enables, disables and deletes jobs, part of `/jobs`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from uuid import UUID

from litestar import Response, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.jobs import Job, JobVersionSummary
from hetuflow_core.resources.pages import Page
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.apply.job_edits import JobEdits
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.etag_headers import IfMatch, tagged
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules.actions import Schedules

_NOT_FOUND = problems(HTTPStatus.NOT_FOUND)


@post(
    "/jobs",
    operation_id="create_job",
    opt=needs(Permission.JOBS_WRITE),
    responses=problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
)
async def create_job(
    data: JSONBody[dict[str, Any]],
    context: NamedDependency[RequestContext],
    job_edits: NamedDependency[JobEdits],
) -> Response[Job]:
    """Create a job from its document, as in job files, if there is none of that name."""
    return tagged(await job_edits.create(context, data))


@patch(
    "/jobs/{job_id:uuid}",
    operation_id="change_job",
    opt=needs(Permission.JOBS_WRITE),
    responses=problems(HTTPStatus.NOT_FOUND, HTTPStatus.PRECONDITION_FAILED),
)
async def change_job(
    job_id: FromPath[UUID],
    data: JSONBody[dict[str, Any]],
    context: NamedDependency[RequestContext],
    job_edits: NamedDependency[JobEdits],
    if_match: IfMatch = None,
) -> Response[Job]:
    """Merge keys, as in job files, into a job, which is a new version; null takes one back to its default."""
    return tagged(await job_edits.change(context, job_id, data, if_match))


@get(
    "/jobs/{job_id:uuid}/versions",
    operation_id="list_job_versions",
    opt=needs(Permission.JOBS_READ),
    responses=_NOT_FOUND,
)
async def list_job_versions(
    job_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    job_edits: NamedDependency[JobEdits],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[JobVersionSummary]:
    """What a job was, newest first."""
    before = decode_cursor(cursor, int)
    found, total = await job_edits.versions(context, job_id, before=before, limit=limit)
    more = encode_cursor(found[limit - 1].version) if len(found) > limit else None
    return Page(found[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@post(
    "/jobs/{job_id:uuid}/enable",
    status_code=200,
    operation_id="enable_job",
    opt=needs(Permission.JOBS_OPERATE),
    responses=_NOT_FOUND,
)
async def enable_job(
    job_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    schedules: NamedDependency[Schedules],
    document_applier: NamedDependency[DocumentApplier],
) -> Job:
    """Let a job's schedules fire again, from now on, and people run it."""
    await schedules.enable_job(context, job_id, enabled=True)
    return await document_applier.job(context, job_id)


@post(
    "/jobs/{job_id:uuid}/disable",
    status_code=200,
    operation_id="disable_job",
    opt=needs(Permission.JOBS_OPERATE),
    responses=_NOT_FOUND,
)
async def disable_job(
    job_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    schedules: NamedDependency[Schedules],
    document_applier: NamedDependency[DocumentApplier],
) -> Job:
    """Let nothing new of a job begin; what has been asked for or fired goes on."""
    await schedules.enable_job(context, job_id, enabled=False)
    return await document_applier.job(context, job_id)


@delete(
    "/jobs/{job_id:uuid}", operation_id="delete_job", opt=needs(Permission.JOBS_WRITE), responses=_NOT_FOUND
)
async def delete_job(
    job_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    schedules: NamedDependency[Schedules],
) -> None:
    """Delete a job and its schedules. Its tasks stay, and those that have not ended go on."""
    await schedules.delete_job(context, job_id)
