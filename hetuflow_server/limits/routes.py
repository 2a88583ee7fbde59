"""`/limits`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from litestar import Router, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.limits import Limit as LimitResource, LimitChange, LimitRequest
from hetuflow_core.resources.pages import Page
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.limits.service import Limits
from hetuflow_server.requests.context import RequestContext

_CHANGE_PROBLEMS = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@get("/limits", operation_id="list_limits", opt=needs(Permission.LIMITS_READ), responses=problems())
async def list_limits(
    context: NamedDependency[RequestContext],
    limits: NamedDependency[Limits],
    namespace: Annotated[str | None, QueryParameter()] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[LimitResource]:
    """List limits by namespace and name, with how much of each is in use."""
    found, total = await limits.list_limits(
        context,
        namespace=namespace,
        after=decode_cursor(cursor, tuple[str, str]),
        limit=limit,
        cap=TOTAL_CAP,
    )
    more = encode_cursor([found[limit - 1].namespace, found[limit - 1].name]) if len(found) > limit else None
    return Page(found[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@post("/limits", operation_id="create_limit", opt=needs(Permission.LIMITS_WRITE), responses=_CHANGE_PROBLEMS)
async def create_limit(
    data: JSONBody[LimitRequest],
    context: NamedDependency[RequestContext],
    limits: NamedDependency[Limits],
) -> LimitResource:
    """Define a limit that jobs of the namespace may name."""
    return await limits.create(context, data)


@get(
    "/limits/{namespace:str}/{name:path}",
    operation_id="get_limit",
    opt=needs(Permission.LIMITS_READ),
    responses=problems(HTTPStatus.NOT_FOUND),
)
async def get_limit(
    namespace: FromPath[str],
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    limits: NamedDependency[Limits],
) -> LimitResource:
    """One limit, and how much of it is in use."""
    return await limits.limit(context, namespace, name.removeprefix("/"))


@patch(
    "/limits/{namespace:str}/{name:path}",
    operation_id="change_limit",
    opt=needs(Permission.LIMITS_WRITE),
    responses=_CHANGE_PROBLEMS,
)
async def change_limit(
    namespace: FromPath[str],
    name: FromPath[str],
    data: JSONBody[LimitChange],
    context: NamedDependency[RequestContext],
    limits: NamedDependency[Limits],
) -> LimitResource:
    """Raise or lower a limit; it holds from now on, and ends nothing that runs."""
    return await limits.change(context, namespace, name.removeprefix("/"), data.max)


@delete(
    "/limits/{namespace:str}/{name:path}",
    operation_id="delete_limit",
    opt=needs(Permission.LIMITS_WRITE),
    responses=_CHANGE_PROBLEMS,
)
async def delete_limit(
    namespace: FromPath[str],
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    limits: NamedDependency[Limits],
) -> None:
    """Delete a limit that no job names and no unfinished work counts against."""
    await limits.delete(context, namespace, name.removeprefix("/"))


limits_router = Router(
    "/api/v1",
    route_handlers=[list_limits, create_limit, get_limit, change_limit, delete_limit],
    tags=["limits"],
)
