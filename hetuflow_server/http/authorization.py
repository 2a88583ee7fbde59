"""Authorization of the REST API: every route declares what it needs, and the guard checks it first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from typing import Any

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope

from hetuflow_core.access.permissions import Permission
from hetuflow_server.http.credentials import ASKS_PASSWORD, basic, bearer, source_of
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal

_DECLARED = "access"
_UNKEPT = "unkept"
_BASIC = "basic"
_CONTEXT = "context"


class RouteAccess(Enum):
    # Anybody: what is called before one has a credential, or by who brings a proof of another kind.
    OPEN = auto()
    # Whoever is known; what it may do to whom is for the service to say.
    KNOWN = auto()


def needs(access: Permission | RouteAccess, *, kept: bool = True) -> dict[str, Any]:
    """Return the `opt` of a route that needs this; a route without it is never answered.

    `kept=False`: its answers hold what must not be kept, so a POST takes no idempotency key.
    """
    return {_DECLARED: access} if kept else {_DECLARED: access, _UNKEPT: True}


def with_basic() -> dict[str, Any]:
    """Return the `opt` of a route that also takes a key as the password a browser asks for."""
    return {_BASIC: True}


def declared(opt: Mapping[str, Any]) -> Permission | RouteAccess | None:
    access: Permission | RouteAccess | None = opt.get(_DECLARED)
    return access


def repeatable(opt: Mapping[str, Any]) -> bool:
    return not opt.get(_UNKEPT, False)


def shows_secrets(opt: Mapping[str, Any]) -> bool:
    """Whether the answers of a route may hold something that is shown this once."""
    return not repeatable(opt)


def guard_with(
    authenticate: Callable[[str | None, str | None], Awaitable[Principal]],
) -> Callable[[ASGIConnection[Any, Any, Any, Any], BaseRouteHandler], Awaitable[None]]:
    """Return the guard of all routes: who asks, and whether it may ask for this at all."""

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        context = context_of(connection)
        context.audit.action = str(getattr(handler, "operation_id", None) or handler.handler_name)
        access = declared(handler.opt)
        if access is None:
            # The framework answers OPTIONS by itself; who asks must be known all the same.
            if connection.scope.get("method") != "OPTIONS":
                raise RuntimeError(f"the route {connection.url.path} does not declare what it needs")
            access = RouteAccess.KNOWN
        if access is RouteAccess.OPEN:
            return
        credential = bearer(connection)
        if handler.opt.get(_BASIC):
            credential = credential or basic(connection)
            connection.scope["state"][ASKS_PASSWORD] = True
        context.authenticated(await authenticate(credential, source_of(connection)))
        if isinstance(access, Permission):
            context.need(access)

    return guard


def set_context(scope: Scope, context: RequestContext) -> None:
    scope["state"][_CONTEXT] = context


def context_of(connection: ASGIConnection[Any, Any, Any, Any]) -> RequestContext:
    context: RequestContext = connection.scope["state"][_CONTEXT]
    return context


def provide_context(request: Request[Any, Any, Any]) -> RequestContext:
    """The request context as a dependency of handlers; the guard has authenticated its principal."""
    return context_of(request)
