"""`/system`: what this is, and what is where."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from litestar import Router, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.cluster import ServerInfo
from hetuflow_core.resources.status import QueueSummary
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.status.service import DEFAULT_MOST, LATE_AFTER, Overview


@get("/system/info", operation_id="system_info", opt=needs(Permission.SYSTEM_READ), responses=problems())
async def system_info(
    overview: NamedDependency[Overview],
) -> ServerInfo:
    """The version of this server, that of the schema, and its time."""
    return await overview.info()


@get("/system/status", operation_id="system_status", opt=needs(Permission.SYSTEM_READ), responses=problems())
async def system_status(
    context: NamedDependency[RequestContext],
    overview: NamedDependency[Overview],
    late_after: Annotated[
        int, QueryParameter(ge=0, le=86_400, description="Seconds after which what is due is late.")
    ] = LATE_AFTER // timedelta(seconds=1),
    most: Annotated[int, QueryParameter(ge=0, le=100, description="How many of each list.")] = DEFAULT_MOST,
) -> QueueSummary:
    """What waits and runs in each namespace, the agents, what fails, what is late, and what comes next."""
    return await overview.status(context, late_after=timedelta(seconds=late_after), most=most)


system_router = Router("/api/v1", route_handlers=[system_info, system_status], tags=["system"])
