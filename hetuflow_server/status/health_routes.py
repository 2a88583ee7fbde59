"""`/healthz` (the process lives) and `/readyz` (it can do its work); both answer without a credential."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.di import NamedDependency

from hetuflow_core.errors import Fault
from hetuflow_server.http.authorization import RouteAccess, needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.problems import answer
from hetuflow_server.status.health import Readiness


class Health(msgspec.Struct, frozen=True):
    status: str


class ReadyCheck(msgspec.Struct, frozen=True):
    name: str
    ok: bool
    detail: str


class Ready(msgspec.Struct, frozen=True):
    status: str
    checks: list[ReadyCheck]


@get("/healthz", operation_id="healthz", opt=needs(RouteAccess.OPEN), tags=["health"], security=[])
async def healthz() -> Health:
    """The process is alive; says nothing of the database."""
    return Health("ok")


@get(
    "/readyz",
    operation_id="readyz",
    opt=needs(RouteAccess.OPEN),
    tags=["health"],
    security=[],
    responses=problems(),
)
async def readyz(
    request: Request[Any, Any, Any],
    readiness: NamedDependency[Readiness],
) -> Response[Any]:
    """The database is reachable, its schema usable, and every loop makes its rounds."""
    checks = await readiness.checks()
    failed = [Fault(check.name, check.detail) for check in checks if not check.ok]
    if failed:
        return answer(
            request,
            HTTPStatus.SERVICE_UNAVAILABLE,
            code="not_ready",
            detail=f"This server is not ready: {failed[0]}",
            faults=failed,
        )
    return Response(Ready("ready", [ReadyCheck(c.name, c.ok, c.detail) for c in checks]))
