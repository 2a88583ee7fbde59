"""`/schedules/{id}/backfill` and `/backfills`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.schedules import Backfill, BackfillRequest
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules.backfills.service import Backfills

_NOT_FOUND = problems(HTTPStatus.NOT_FOUND)
_STATE_PROBLEMS = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@post(
    "/schedules/{schedule_id:uuid}/backfill",
    operation_id="backfill_schedule",
    opt=needs(Permission.SCHEDULES_READ),
    responses=_STATE_PROBLEMS,
)
async def backfill_schedule(
    schedule_id: FromPath[UUID],
    data: JSONBody[BackfillRequest],
    context: NamedDependency[RequestContext],
    backfills: NamedDependency[Backfills],
) -> Backfill:
    """Run the fires of a range in the past, each once, at most `max_parallel` of them at a time."""
    if not data.dry_run:
        context.need(Permission.SCHEDULES_OPERATE)
    return await backfills.create(context, schedule_id, data)


@get("/backfills", operation_id="list_backfills", opt=needs(Permission.SCHEDULES_READ), responses=problems())
async def list_backfills(
    context: NamedDependency[RequestContext],
    backfills: NamedDependency[Backfills],
    namespace: Annotated[str | None, QueryParameter()] = None,
    schedule_id: Annotated[UUID | None, QueryParameter()] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Backfill]:
    """List backfills, newest first."""
    found, total = await backfills.list_backfills(
        context,
        namespace=namespace,
        schedule_id=schedule_id,
        before=decode_cursor(cursor, UUID),
        limit=limit,
        cap=TOTAL_CAP,
    )
    more = encode_cursor(found[limit - 1].id) if len(found) > limit else None
    return Page(found[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@get(
    "/backfills/{backfill_id:uuid}",
    operation_id="get_backfill",
    opt=needs(Permission.SCHEDULES_READ),
    responses=_NOT_FOUND,
)
async def get_backfill(
    backfill_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    backfills: NamedDependency[Backfills],
) -> Backfill:
    """A backfill and how far it has come."""
    return await backfills.backfill(context, backfill_id)


@post(
    "/backfills/{backfill_id:uuid}/cancel",
    status_code=200,
    operation_id="cancel_backfill",
    opt=needs(Permission.SCHEDULES_OPERATE),
    responses=_STATE_PROBLEMS,
)
async def cancel_backfill(
    backfill_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    backfills: NamedDependency[Backfills],
) -> Backfill:
    """Make no more of its tasks, and cancel those that have not ended."""
    return await backfills.cancel(context, backfill_id)


backfills_router = Router(
    "/api/v1",
    route_handlers=[backfill_schedule, list_backfills, get_backfill, cancel_backfill],
    tags=["schedules"],
)
