"""`/system`: what this is, and what is where."""

from __future__ import annotations

from litestar import Router, get
from litestar.di import NamedDependency

from hetuflow_core.resources import QueueSummary, ServerInfo
from hetuflow_server.http.openapi import problems
from hetuflow_server.services.access import Principal
from hetuflow_server.services.overview import Overview


@get("/system/info", operation_id="system_info", responses=problems())
async def system_info(
    principal: NamedDependency[Principal],  # noqa: ARG001 - asked for so that strangers are not answered
    overview: NamedDependency[Overview],
) -> ServerInfo:
    return await overview.info()


@get("/system/status", operation_id="system_status", responses=problems())
async def system_status(
    principal: NamedDependency[Principal],
    overview: NamedDependency[Overview],
) -> QueueSummary:
    """What waits, what runs, and which agents there are."""
    return await overview.status(principal)


system_router = Router("/api/v1", route_handlers=[system_info, system_status], tags=["system"])
