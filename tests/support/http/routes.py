"""The routes of the REST API as the router knows them, with what each one declares to need."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, cast

from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from hetuflow_core.access.permissions import Permission
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_server.app.rest import rest_api
from hetuflow_server.app.services import Services
from hetuflow_server.http.authorization import RouteAccess, declared
from hetuflow_server.http.openapi import completed
from hetuflow_server.postgres.database import Database
from hetuflow_server.settings import ServerSettings
from hetuflow_server.status.health import Readiness


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    # Their names, in order.
    parameters: tuple[str, ...]
    access: Permission | RouteAccess | None
    operation_id: str | None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def rest_application(**settings_: str) -> Litestar:
    """Return the application as a server has it, on a database that nobody asks."""
    environment = settings_ | {
        "HETUFLOW_DATABASE__URL": "postgresql://nobody@127.0.0.1:1/nothing",
        "HETUFLOW_SERVER__SECRET_KEY": "s" * 48,
    }
    settings = load_settings(ServerSettings, env=environment, cwd=Path("/"))
    database = Database(
        settings.database.url.reveal(),
        pool_size=2,
        connect_timeout=timedelta(seconds=2),
        statement_timeout=timedelta(seconds=2),
    )
    # Nothing is asked of it, so nobody needs to be ready.
    return rest_api(
        Services(settings, database, SystemClock()), cast("Readiness", None), settings.server.cors_origins
    )


@cache
def usual_application() -> Litestar:
    """Return the application without any setting of its own: one for all who only look at it."""
    return rest_application()


@cache
def usual_document() -> dict[str, Any]:
    """Return the OpenAPI document of that application, to be looked at alone."""
    return completed(usual_application())


def all_routes() -> list[Route]:
    """Return every route but the ones for OPTIONS, which the framework makes by itself."""
    return [
        _route(route, handler, method)
        for route in usual_application().routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        for method in sorted(handler.http_methods)
        if method != "OPTIONS"
    ]


def _route(route: HTTPRoute, handler: HTTPRouteHandler, method: str) -> Route:
    return Route(
        str(method),
        route.path_format,
        tuple(route.path_parameters),
        declared(handler.opt),
        handler.operation_id if isinstance(handler.operation_id, str) else None,
    )
