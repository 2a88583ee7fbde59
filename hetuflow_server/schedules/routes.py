"""`/schedules`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from litestar import Response, Router, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.errors import Invalid
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.schedules import NewScheduleRequest, Schedule
from hetuflow_core.states import ScheduleKind
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.etag_headers import IfMatch, tagged
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules.actions import Schedules
from hetuflow_server.schedules.store import ScheduleFilter

_NOT_FOUND = problems(HTTPStatus.NOT_FOUND)
_CHANGE_PROBLEMS = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@get("/schedules", operation_id="list_schedules", opt=needs(Permission.SCHEDULES_READ), responses=problems())
async def list_schedules(
    context: NamedDependency[RequestContext],
    schedules: NamedDependency[Schedules],
    namespace: Annotated[str | None, QueryParameter()] = None,
    job: Annotated[str | None, QueryParameter(description="Name of the job.")] = None,
    name: Annotated[str | None, QueryParameter()] = None,
    kind: Annotated[str | None, QueryParameter()] = None,
    enabled: Annotated[bool | None, QueryParameter(description="Both it and its job.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Schedule]:
    """List schedules by namespace, job and name."""
    if kind is not None and kind not in set(ScheduleKind):
        raise Invalid(f"There is no kind of schedule {kind}: use one of {', '.join(ScheduleKind)}.")
    found, total = await schedules.list_schedules(
        context,
        ScheduleFilter(namespace=namespace, job=job, name=name, kind=kind, enabled=enabled),
        after=decode_cursor(cursor, tuple[str, str, str]),
        limit=limit,
        cap=TOTAL_CAP,
    )
    more = None
    if len(found) > limit:
        last = found[limit - 1]
        more = encode_cursor([last.namespace, last.job, last.name])
    return Page(found[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@get(
    "/schedules/{schedule_id:uuid}",
    operation_id="get_schedule",
    opt=needs(Permission.SCHEDULES_READ),
    responses=_NOT_FOUND,
)
async def get_schedule(
    schedule_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    schedules: NamedDependency[Schedules],
) -> Response[Schedule]:
    """A schedule, and its ETag, which guards a change against others when it is sent back as If-Match."""
    return tagged(await schedules.schedule(context, schedule_id))


@post(
    "/schedules",
    operation_id="add_schedule",
    opt=needs(Permission.SCHEDULES_WRITE),
    responses=_CHANGE_PROBLEMS,
)
async def add_schedule(
    data: JSONBody[NewScheduleRequest],
    context: NamedDependency[RequestContext],
    schedules: NamedDependency[Schedules],
) -> Schedule:
    """Give a job another schedule. Applying the job's file again makes its schedules what the file says."""
    return await schedules.add(context, data.job_id, data.spec)


@patch(
    "/schedules/{schedule_id:uuid}",
    operation_id="change_schedule",
    opt=needs(Permission.SCHEDULES_WRITE),
    responses=problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED),
)
async def change_schedule(
    schedule_id: FromPath[UUID],
    data: JSONBody[dict[str, Any]],
    context: NamedDependency[RequestContext],
    schedules: NamedDependency[Schedules],
    if_match: IfMatch = None,
) -> Response[Schedule]:
    """Merge keys, as in the job's file, into a schedule; null takes one back to its default."""
    return tagged(await schedules.change(context, schedule_id, data, if_match=if_match))


@delete(
    "/schedules/{schedule_id:uuid}",
    operation_id="delete_schedule",
    opt=needs(Permission.SCHEDULES_WRITE),
    responses=_NOT_FOUND,
)
async def delete_schedule(
    schedule_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    schedules: NamedDependency[Schedules],
) -> None:
    """Delete a schedule. What it has fired stays; what it would have fired does not happen."""
    await schedules.delete(context, schedule_id)


@post(
    "/schedules/{schedule_id:uuid}/enable",
    status_code=200,
    operation_id="enable_schedule",
    opt=needs(Permission.SCHEDULES_OPERATE),
    responses=_NOT_FOUND,
)
async def enable_schedule(
    schedule_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    schedules: NamedDependency[Schedules],
) -> Schedule:
    """Resume a schedule from now on: what it did not fire while it was disabled is no misfire."""
    return await schedules.enable(context, schedule_id, enabled=True)


@post(
    "/schedules/{schedule_id:uuid}/disable",
    status_code=200,
    operation_id="disable_schedule",
    opt=needs(Permission.SCHEDULES_OPERATE),
    responses=_NOT_FOUND,
)
async def disable_schedule(
    schedule_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    schedules: NamedDependency[Schedules],
) -> Schedule:
    """Let a schedule fire no more; what it has fired goes on."""
    return await schedules.enable(context, schedule_id, enabled=False)


schedules_router = Router(
    "/api/v1",
    route_handlers=[
        *(list_schedules, get_schedule, add_schedule, change_schedule, delete_schedule),
        *(enable_schedule, disable_schedule),
    ],
    tags=["schedules"],
)
