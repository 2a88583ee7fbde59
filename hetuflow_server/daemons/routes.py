"""`/daemons`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.daemons import Daemon, DaemonDetail, DaemonRun, RestartRequest, ScaleRequest
from hetuflow_core.resources.pages import Page
from hetuflow_server.daemons.actions import DaemonActions
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext

_NOT_FOUND = problems(HTTPStatus.NOT_FOUND)
_STATE_PROBLEMS = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@get("/daemons", operation_id="list_daemons", opt=needs(Permission.SCHEDULES_READ), responses=problems())
async def list_daemons(
    context: NamedDependency[RequestContext],
    daemon_actions: NamedDependency[DaemonActions],
    namespace: Annotated[str | None, QueryParameter()] = None,
    job: Annotated[str | None, QueryParameter(description="Name of the job.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Daemon]:
    """List daemons by namespace, job and name."""
    found, total = await daemon_actions.list_daemons(
        context,
        namespace=namespace,
        job=job,
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
    "/daemons/{daemon_id:uuid}",
    operation_id="get_daemon",
    opt=needs(Permission.SCHEDULES_READ),
    responses=_NOT_FOUND,
)
async def get_daemon(
    daemon_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    daemon_actions: NamedDependency[DaemonActions],
) -> DaemonDetail:
    """A daemon with its slots; its id is that of its schedule."""
    return await daemon_actions.daemon(context, daemon_id)


@get(
    "/daemons/{daemon_id:uuid}/history",
    operation_id="list_daemon_runs",
    opt=needs(Permission.SCHEDULES_READ),
    responses=_NOT_FOUND,
)
async def list_daemon_runs(
    daemon_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    daemon_actions: NamedDependency[DaemonActions],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[DaemonRun]:
    """List the instances a daemon has and had, newest first; `total` counts those of this page."""
    found = await daemon_actions.history(context, daemon_id, before=decode_cursor(cursor, UUID), limit=limit)
    more = encode_cursor(found[limit - 1].task_id) if len(found) > limit else None
    shown = found[:limit]
    return Page(shown, more, len(shown), more is not None)


@post(
    "/daemons/{daemon_id:uuid}/stop",
    status_code=200,
    operation_id="stop_daemon",
    opt=needs(Permission.SCHEDULES_OPERATE),
    responses=_NOT_FOUND,
)
async def stop_daemon(
    daemon_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    daemon_actions: NamedDependency[DaemonActions],
) -> DaemonDetail:
    """End its instances and start none until it is started: its schedule is disabled."""
    return await daemon_actions.stop(context, daemon_id)


@post(
    "/daemons/{daemon_id:uuid}/start",
    status_code=200,
    operation_id="start_daemon",
    opt=needs(Permission.SCHEDULES_OPERATE),
    responses=_STATE_PROBLEMS,
)
async def start_daemon(
    daemon_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    daemon_actions: NamedDependency[DaemonActions],
) -> DaemonDetail:
    """Start a stopped daemon: its schedule is enabled."""
    return await daemon_actions.start(context, daemon_id)


@post(
    "/daemons/{daemon_id:uuid}/scale",
    status_code=200,
    operation_id="scale_daemon",
    opt=needs(Permission.SCHEDULES_OPERATE),
    responses=_STATE_PROBLEMS,
)
async def scale_daemon(
    daemon_id: FromPath[UUID],
    data: JSONBody[ScaleRequest],
    context: NamedDependency[RequestContext],
    daemon_actions: NamedDependency[DaemonActions],
) -> DaemonDetail:
    """Change how many instances there are; the highest slots go first."""
    return await daemon_actions.scale(context, daemon_id, data.replicas)


@post(
    "/daemons/{daemon_id:uuid}/restart",
    status_code=200,
    operation_id="restart_daemon",
    opt=needs(Permission.SCHEDULES_OPERATE),
    responses=_STATE_PROBLEMS,
)
async def restart_daemon(
    daemon_id: FromPath[UUID],
    data: JSONBody[RestartRequest],
    context: NamedDependency[RequestContext],
    daemon_actions: NamedDependency[DaemonActions],
) -> DaemonDetail:
    """Start all instances anew, a few at a time, or that of one slot."""
    return await daemon_actions.restart(context, daemon_id, data.slot)


daemons_router = Router(
    "/api/v1",
    route_handlers=[
        *(list_daemons, get_daemon, list_daemon_runs),
        *(stop_daemon, start_daemon, scale_daemon, restart_daemon),
    ],
    tags=["daemons"],
)
