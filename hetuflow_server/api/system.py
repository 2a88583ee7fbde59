"""`/system`: what this is, and what is where."""

from __future__ import annotations

from litestar import Router, get
from litestar.di import NamedDependency

from hetuflow_core.permissions import Permission
from hetuflow_core.resources import QueueSummary, ServerInfo
from hetuflow_server.http.guarding import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.services.overview import Overview
from hetuflow_server.services.principals import Principal


@get("/system/info", operation_id="system_info", opt=needs(Permission.SYSTEM_READ), responses=problems())
async def system_info(
    overview: NamedDependency[Overview],
) -> ServerInfo:
    return await overview.info()


@get("/system/status", operation_id="system_status", opt=needs(Permission.SYSTEM_READ), responses=problems())
async def system_status(
    principal: NamedDependency[Principal],
    overview: NamedDependency[Overview],
) -> QueueSummary:
    """What waits, what runs, and which agents there are."""
    return await overview.status(principal)


system_router = Router("/api/v1", route_handlers=[system_info, system_status], tags=["system"])
