"""`/auth/oidc`: logging in through an identity provider."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response, Router, get, post
from litestar.datastructures import Cookie
from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter

from hetuflow_core.errors import Unauthenticated
from hetuflow_core.resources.identity import LoginAnswer, OidcCodeRequest
from hetuflow_server.http.authorization import RouteAccess, needs
from hetuflow_server.http.credentials import source_of
from hetuflow_server.http.openapi import problems
from hetuflow_server.identity.oidc.logins import OidcLogins
from hetuflow_server.requests.context import RequestContext

_OPEN = needs(RouteAccess.OPEN)
_PROBLEMS = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
# Ties a login to the browser it was begun in: a state that somebody else has sent does not log one in.
_COOKIE = "hetuflow_oidc"
_PATH = "/api/v1/auth/oidc"


@get(
    "/auth/oidc/login",
    operation_id="begin_oidc_login",
    opt=_OPEN,
    responses=_PROBLEMS,
    security=[],
    status_code=302,
)
async def begin_oidc_login(
    request: Request[Any, Any, Any],
    context: NamedDependency[RequestContext],
    oidc_logins: NamedDependency[OidcLogins],
    redirect: Annotated[
        str | None, QueryParameter(max_length=200, description="Address of a command on the same machine.")
    ] = None,
    challenge: Annotated[
        str | None, QueryParameter(max_length=200, description="PKCE, of that command.")
    ] = None,
) -> Response[None]:
    """Send a browser to the identity provider."""
    begun = await oidc_logins.begin(context, redirect, challenge)
    cookie = Cookie(
        key=_COOKIE,
        value=begun.state,
        path=_PATH,
        max_age=600,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return Response(None, status_code=302, headers=_kept_private(begun.url), cookies=[cookie])


@get(
    "/auth/oidc/callback",
    operation_id="finish_oidc_login",
    opt=_OPEN,
    responses=_PROBLEMS,
    security=[],
)
async def finish_oidc_login(
    request: Request[Any, Any, Any],
    context: NamedDependency[RequestContext],
    oidc_logins: NamedDependency[OidcLogins],
    code: Annotated[str | None, QueryParameter(max_length=4096)] = None,
    login_state: Annotated[str | None, QueryParameter(name="state", max_length=200)] = None,
) -> Response[LoginAnswer | None]:
    """Where the identity provider sends the browser back to."""
    if code is None or login_state is None or request.cookies.get(_COOKIE) != login_state:
        raise Unauthenticated("This login was not begun in this browser, or was refused.", code="oidc.state")
    finished = await oidc_logins.finish(context, code, login_state, source_of(request))
    if finished.url is not None:
        return Response(None, status_code=302, headers=_kept_private(finished.url))
    return Response(finished.answer, headers={"Cache-Control": "no-store"})


@post(
    "/auth/oidc/token",
    status_code=200,
    operation_id="exchange_oidc_code",
    opt=_OPEN,
    responses=_PROBLEMS,
    security=[],
)
async def exchange_oidc_code(
    request: Request[Any, Any, Any],
    data: JSONBody[OidcCodeRequest],
    context: NamedDependency[RequestContext],
    oidc_logins: NamedDependency[OidcLogins],
) -> LoginAnswer:
    """Give tokens for the code that a command has got through the browser."""
    return await oidc_logins.exchange(context, data.code, data.verifier, source_of(request))


def _kept_private(url: str) -> dict[str, str]:
    return {"Location": url, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


oidc_router = Router(
    "/api/v1", route_handlers=[begin_oidc_login, finish_oidc_login, exchange_oidc_code], tags=["auth"]
)
