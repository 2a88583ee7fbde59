"""`/namespaces`."""

from __future__ import annotations

from http import HTTPStatus

from litestar import Router, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.namespaces import BindRequest, Namespace, NamespaceChange, NamespaceRequest
from hetuflow_core.resources.pages import Page
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.identity.namespaces.service import Namespaces
from hetuflow_server.requests.context import RequestContext

_PROBLEMS = problems(HTTPStatus.NOT_FOUND)


@get(
    "/namespaces", operation_id="list_namespaces", opt=needs(Permission.NAMESPACES_READ), responses=problems()
)
async def list_namespaces(
    context: NamedDependency[RequestContext],
    namespaces: NamedDependency[Namespaces],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Namespace]:
    """List namespaces by name, with the server that looks after each."""
    found, total = await namespaces.list_namespaces(
        context, after=decode_cursor(cursor, str), limit=limit, cap=TOTAL_CAP
    )
    more = encode_cursor(found[limit - 1].name) if len(found) > limit else None
    return Page(found[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@post(
    "/namespaces",
    operation_id="create_namespace",
    opt=needs(Permission.NAMESPACES_WRITE),
    responses=problems(HTTPStatus.CONFLICT),
)
async def create_namespace(
    data: JSONBody[NamespaceRequest],
    context: NamedDependency[RequestContext],
    namespaces: NamedDependency[Namespaces],
) -> Namespace:
    """Make a namespace; a server is bound to it within a second or two."""
    return await namespaces.create(context, data)


@get(
    "/namespaces/{name:str}",
    operation_id="get_namespace",
    opt=needs(Permission.NAMESPACES_READ),
    responses=_PROBLEMS,
)
async def get_namespace(
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    namespaces: NamedDependency[Namespaces],
) -> Namespace:
    """One namespace, and the server that looks after it."""
    return await namespaces.namespace(context, name)


@patch(
    "/namespaces/{name:str}",
    operation_id="change_namespace",
    opt=needs(Permission.NAMESPACES_WRITE),
    responses=_PROBLEMS,
)
async def change_namespace(
    name: FromPath[str],
    data: JSONBody[NamespaceChange],
    context: NamedDependency[RequestContext],
    namespaces: NamedDependency[Namespaces],
) -> Namespace:
    """Change its weight or lease, or replace its labels; what is not given stays, a null lease goes."""
    return await namespaces.change(context, name, data)


@post(
    "/namespaces/{name:str}/bind",
    status_code=200,
    operation_id="bind_namespace",
    opt=needs(Permission.NAMESPACES_WRITE),
    responses=_PROBLEMS,
)
async def bind_namespace(
    name: FromPath[str],
    data: JSONBody[BindRequest],
    context: NamedDependency[RequestContext],
    namespaces: NamedDependency[Namespaces],
) -> Namespace:
    """Give it to a server and pin it there, or with `pinned` false and no server take the pin away."""
    return await namespaces.bind(context, name, data)


namespaces_router = Router(
    "/api/v1",
    route_handlers=[list_namespaces, create_namespace, get_namespace, change_namespace, bind_namespace],
    tags=["namespaces"],
)
