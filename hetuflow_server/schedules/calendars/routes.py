"""`/calendars`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from litestar import Response, Router, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.schedules import Calendar, CalendarDays
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.etag_headers import IfMatch, tagged
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules.calendars.actions import CalendarActions

_NOT_FOUND = problems(HTTPStatus.NOT_FOUND)
_CHANGE_PROBLEMS = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@get("/calendars", operation_id="list_calendars", opt=needs(Permission.CALENDARS_READ), responses=problems())
async def list_calendars(
    context: NamedDependency[RequestContext],
    calendar_actions: NamedDependency[CalendarActions],
    namespace: Annotated[str | None, QueryParameter()] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Calendar]:
    """List calendars by namespace and name."""
    found, total = await calendar_actions.list_calendars(
        context,
        namespace=namespace,
        after=decode_cursor(cursor, tuple[str, str]),
        limit=limit,
        cap=TOTAL_CAP,
    )
    more = encode_cursor([found[limit - 1].namespace, found[limit - 1].name]) if len(found) > limit else None
    return Page(found[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@post(
    "/calendars",
    operation_id="create_calendar",
    opt=needs(Permission.CALENDARS_WRITE),
    responses=_CHANGE_PROBLEMS,
)
async def create_calendar(
    data: JSONBody[dict[str, Any]],
    context: NamedDependency[RequestContext],
    calendar_actions: NamedDependency[CalendarActions],
) -> Calendar:
    """Define a calendar, written as in a file."""
    return await calendar_actions.create(context, data)


@get(
    "/calendars/{namespace:str}/{name:str}",
    operation_id="get_calendar",
    opt=needs(Permission.CALENDARS_READ),
    responses=_NOT_FOUND,
)
async def get_calendar(
    namespace: FromPath[str],
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    calendar_actions: NamedDependency[CalendarActions],
) -> Response[Calendar]:
    """A calendar, and its ETag, which guards a change against others when it is sent back as If-Match."""
    return tagged(await calendar_actions.calendar(context, namespace, name))


@get(
    "/calendars/{namespace:str}/{name:str}/days",
    operation_id="list_calendar_days",
    opt=needs(Permission.CALENDARS_READ),
    responses=_NOT_FOUND,
)
async def list_calendar_days(
    namespace: FromPath[str],
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    calendar_actions: NamedDependency[CalendarActions],
    year: Annotated[int | None, QueryParameter(ge=1971, le=2500)] = None,
) -> CalendarDays:
    """List the days of a year, the present one if none is given, and what makes each one of them."""
    return CalendarDays(await calendar_actions.days(context, namespace, name, year))


@patch(
    "/calendars/{namespace:str}/{name:str}",
    operation_id="change_calendar",
    opt=needs(Permission.CALENDARS_WRITE),
    responses=problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED),
)
async def change_calendar(
    namespace: FromPath[str],
    name: FromPath[str],
    data: JSONBody[dict[str, Any]],
    context: NamedDependency[RequestContext],
    calendar_actions: NamedDependency[CalendarActions],
    if_match: IfMatch = None,
) -> Response[Calendar]:
    """Merge keys into a calendar; coming fires of the schedules that use it are decided anew."""
    return tagged(await calendar_actions.change(context, namespace, name, data, if_match=if_match))


@delete(
    "/calendars/{namespace:str}/{name:str}",
    operation_id="delete_calendar",
    opt=needs(Permission.CALENDARS_WRITE),
    responses=_CHANGE_PROBLEMS,
)
async def delete_calendar(
    namespace: FromPath[str],
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    calendar_actions: NamedDependency[CalendarActions],
) -> None:
    """Delete a calendar that no schedule and no other calendar uses."""
    await calendar_actions.delete(context, namespace, name)


calendars_router = Router(
    "/api/v1",
    route_handlers=[
        *(
            list_calendars,
            create_calendar,
            get_calendar,
            list_calendar_days,
            change_calendar,
            delete_calendar,
        ),
    ],
    tags=["calendars"],
)
