"""`/servers` and `/system/leader`."""

from __future__ import annotations

from http import HTTPStatus
from uuid import UUID

from litestar import Router, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.cluster import Leader, Server
from hetuflow_core.resources.pages import Page
from hetuflow_server.cluster.servers import Servers
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, Cursor, Limit, decode_cursor, encode_cursor


@get("/servers", operation_id="list_servers", opt=needs(Permission.SYSTEM_READ), responses=problems())
async def list_servers(
    servers: NamedDependency[Servers],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Server]:
    """List servers, the youngest first; those that are gone are forgotten after a day."""
    found, total = await servers.list_servers(after=decode_cursor(cursor, UUID), limit=limit)
    more = encode_cursor(found[limit - 1].id) if len(found) > limit else None
    return Page(found[:limit], more, total, total_capped=False)


@get(
    "/servers/{server_id:uuid}",
    operation_id="get_server",
    opt=needs(Permission.SYSTEM_READ),
    responses=problems(HTTPStatus.NOT_FOUND),
)
async def get_server(
    server_id: FromPath[UUID],
    servers: NamedDependency[Servers],
) -> Server:
    """One server."""
    return await servers.server(server_id)


@get("/system/leader", operation_id="system_leader", opt=needs(Permission.SYSTEM_READ), responses=problems())
async def system_leader(
    servers: NamedDependency[Servers],
) -> Leader:
    """Which server leads, since when, and until when if it does not renew."""
    return await servers.leader()


servers_router = Router("/api/v1", route_handlers=[list_servers, get_server, system_leader], tags=["servers"])
