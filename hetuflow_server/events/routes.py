"""`/events`."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from litestar import Response, Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.events import Event, EventDetail, EventRequest
from hetuflow_core.resources.pages import Page
from hetuflow_server.events.service import Events
from hetuflow_server.events.store import EventFilter
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext

_NOT_FOUND = problems(HTTPStatus.NOT_FOUND)


@post(
    "/events",
    operation_id="emit_event",
    opt=needs(Permission.EVENTS_EMIT),
    responses=problems(HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
)
async def emit_event(
    data: JSONBody[EventRequest],
    context: NamedDependency[RequestContext],
    events: NamedDependency[Events],
) -> Response[EventDetail]:
    """Record an event; 201. With a key that the namespace knows it is the event there was; 200."""
    emitted = await events.emit(context, data)
    return Response(emitted.event, status_code=HTTPStatus.CREATED if emitted.is_new else HTTPStatus.OK)


@get("/events", operation_id="list_events", opt=needs(Permission.EVENTS_READ), responses=problems())
async def list_events(
    context: NamedDependency[RequestContext],
    events: NamedDependency[Events],
    namespace: Annotated[str | None, QueryParameter()] = None,
    name: Annotated[str | None, QueryParameter(description="A name, or its beginning and `*`.")] = None,
    key: Annotated[str | None, QueryParameter()] = None,
    since: Annotated[datetime | None, QueryParameter(description="Recorded at or after.")] = None,
    until: Annotated[datetime | None, QueryParameter(description="Recorded before.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Event]:
    """List events, newest first. A page may be short and have a next one: only so many are looked at."""
    page = await events.list_events(
        EventFilter(context.reach(namespace), name=name, key=key, since=since, until=until),
        before=decode_cursor(cursor, UUID),
        limit=limit,
        cap=TOTAL_CAP,
    )
    more = None if page.position is None else encode_cursor(page.position)
    return Page(page.items, more, page.total.count, page.total.capped)


@get(
    "/events/{event_id:uuid}",
    operation_id="get_event",
    opt=needs(Permission.EVENTS_READ),
    responses=_NOT_FOUND,
)
async def get_event(
    event_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    events: NamedDependency[Events],
) -> EventDetail:
    """An event, and what became of it at each schedule that wanted it."""
    return await events.event(context, event_id)


@post(
    "/events/{event_id:uuid}/replay",
    operation_id="replay_event",
    opt=needs(Permission.EVENTS_EMIT),
    responses=_NOT_FOUND,
)
async def replay_event(
    event_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    events: NamedDependency[Events],
) -> EventDetail:
    """Say an event once more: a new one with its name and payload, matched with the schedules of now."""
    return (await events.replay(context, event_id)).event


events_router = Router(
    "/api/v1", route_handlers=[emit_event, list_events, get_event, replay_event], tags=["events"]
)
