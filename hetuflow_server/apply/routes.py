"""`/apply` and `/jobs`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from litestar import Response, Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.apply import ApplyRequest, ApplyResult
from hetuflow_core.resources.jobs import Job
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.tasks import RunRequest, RunsRequest, TaskDetail, TaskList
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.apply.job_routes import (
    change_job,
    create_job,
    delete_job,
    disable_job,
    enable_job,
    list_job_versions,
)
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.etag_headers import tagged
from hetuflow_server.http.filters import Labels, labels_of
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.tasks.actions import TaskActions

_RUN_PROBLEMS = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@post(
    "/apply",
    status_code=200,
    operation_id="apply",
    opt=needs(Permission.JOBS_READ),
    responses=problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
)
async def apply(
    data: JSONBody[ApplyRequest],
    context: NamedDependency[RequestContext],
    document_applier: NamedDependency[DocumentApplier],
    dry_run: Annotated[bool, QueryParameter(description="Only say what would change.")] = False,
) -> ApplyResult:
    """Apply documents as in job files, all together or not at all."""
    return await document_applier.apply_request(context, data, dry_run=dry_run)


@get("/jobs", operation_id="list_jobs", opt=needs(Permission.JOBS_READ), responses=problems())
async def list_jobs(
    context: NamedDependency[RequestContext],
    document_applier: NamedDependency[DocumentApplier],
    namespace: Annotated[str | None, QueryParameter()] = None,
    name: Annotated[str | None, QueryParameter()] = None,
    label: Labels = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Job]:
    """List jobs by namespace and name."""
    after = decode_cursor(cursor, tuple[str, str])
    jobs, total = await document_applier.list_jobs(
        context,
        namespace=namespace,
        name=name,
        labels=labels_of(label),
        after=after,
        limit=limit,
        cap=TOTAL_CAP,
    )
    more = encode_cursor([jobs[limit - 1].namespace, jobs[limit - 1].name]) if len(jobs) > limit else None
    return Page(jobs[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@get(
    "/jobs/{job_id:uuid}",
    operation_id="get_job",
    opt=needs(Permission.JOBS_READ),
    responses=problems(HTTPStatus.NOT_FOUND),
)
async def get_job(
    job_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    document_applier: NamedDependency[DocumentApplier],
) -> Response[Job]:
    """A job with its whole document. Its ETag, sent back as If-Match, guards a change against others."""
    return tagged(await document_applier.job(context, job_id))


@post(
    "/jobs/{job_id:uuid}/run",
    operation_id="run_job",
    opt=needs(Permission.TASKS_RUN),
    responses=_RUN_PROBLEMS,
)
async def run_job(
    job_id: FromPath[UUID],
    data: JSONBody[RunRequest],
    context: NamedDependency[RequestContext],
    task_actions: NamedDependency[TaskActions],
) -> TaskDetail:
    """Run a job once, now or at `run_at`."""
    return await task_actions.run_one(context, job_id, data)


@post(
    "/jobs/{job_id:uuid}/runs",
    operation_id="run_job_many",
    opt=needs(Permission.TASKS_RUN),
    responses=_RUN_PROBLEMS,
)
async def run_job_many(
    job_id: FromPath[UUID],
    data: JSONBody[RunsRequest],
    context: NamedDependency[RequestContext],
    task_actions: NamedDependency[TaskActions],
) -> TaskList:
    """Run a job up to 1,000 times in one transaction."""
    return TaskList(await task_actions.run_many(context, job_id, data.runs))


jobs_router = Router(
    "/api/v1",
    route_handlers=[
        *(apply, list_jobs, create_job, get_job, change_job, delete_job, list_job_versions),
        *(run_job, run_job_many, enable_job, disable_job),
    ],
    tags=["jobs"],
)
