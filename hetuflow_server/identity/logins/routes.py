"""`/auth`: logging in and out, and who one is."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from litestar import Request, Router, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.resources.identity import (
    LoginAnswer,
    LoginRequest,
    Me,
    NamespaceRights,
    OwnPasswordRequest,
    RefreshRequest,
    Session,
)
from hetuflow_core.resources.pages import Page
from hetuflow_server.http.authorization import RouteAccess, needs
from hetuflow_server.http.credentials import source_of
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.identity.access import Access
from hetuflow_server.identity.logins.service import Logins
from hetuflow_server.identity.logins.sessions import UserSessions
from hetuflow_server.requests.context import RequestContext

_OPEN = needs(RouteAccess.OPEN)
_KNOWN = needs(RouteAccess.KNOWN, kept=False)
_LIMITED = problems(HTTPStatus.TOO_MANY_REQUESTS)


@post("/auth/login", status_code=200, operation_id="login", opt=_OPEN, responses=_LIMITED, security=[])
async def login(
    request: Request[Any, Any, Any],
    data: JSONBody[LoginRequest],
    context: NamedDependency[RequestContext],
    logins: NamedDependency[Logins],
) -> LoginAnswer:
    """Log in with name and password: an access token for a short while, and a refresh token for longer."""
    return await logins.log_in(context, data.name, data.password, source_of(request))


@post("/auth/refresh", status_code=200, operation_id="refresh", opt=_OPEN, responses=problems(), security=[])
async def refresh(
    data: JSONBody[RefreshRequest],
    context: NamedDependency[RequestContext],
    logins: NamedDependency[Logins],
) -> LoginAnswer:
    """Give new tokens for a refresh token, which is good once."""
    return await logins.refresh(context, data.refresh_token)


@post("/auth/logout", status_code=204, operation_id="logout", opt=_KNOWN, responses=problems())
async def logout(
    context: NamedDependency[RequestContext],
    logins: NamedDependency[Logins],
    access: NamedDependency[Access],
) -> None:
    """End the session; its tokens are good no more, within a second on every server."""
    await logins.log_out(context)
    access.forget_session(context.principal.session_id)


@post("/auth/password", status_code=204, operation_id="change_own_password", opt=_KNOWN, responses=_LIMITED)
async def change_own_password(
    data: JSONBody[OwnPasswordRequest],
    context: NamedDependency[RequestContext],
    logins: NamedDependency[Logins],
) -> None:
    """Change one's own password; one's other sessions end."""
    await logins.change_password(context, data.current_password, data.password)


@get("/auth/me", operation_id="who_am_i", opt=_KNOWN, responses=problems())
async def who_am_i(context: NamedDependency[RequestContext]) -> Me:
    """Who asks, and what it may do where."""
    rights = [
        NamespaceRights(name, sorted(held)) for name, held in sorted(context.principal.rights.named.items())
    ]
    if context.principal.rights.everywhere:
        rights.insert(0, NamespaceRights(None, sorted(context.principal.rights.everywhere)))
    return Me(
        context.principal.id,
        context.principal.kind.value,
        context.principal.name,
        context.principal.source,
        rights,
    )


@get("/auth/sessions", operation_id="list_sessions", opt=_KNOWN, responses=problems())
async def list_sessions(
    context: NamedDependency[RequestContext],
    user_sessions: NamedDependency[UserSessions],
    user: Annotated[str | None, QueryParameter(description="Another user; needs users.manage.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Session]:
    """List where one is logged in, the newest first; or where another user is."""
    found, total = await user_sessions.list_sessions(
        context, user, before=decode_cursor(cursor, UUID), limit=limit, cap=TOTAL_CAP
    )
    more = encode_cursor(found[limit - 1].id) if len(found) > limit else None
    return Page(found[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@delete(
    "/auth/sessions/{session_id:uuid}",
    operation_id="end_session",
    opt=_KNOWN,
    responses=problems(HTTPStatus.NOT_FOUND),
)
async def end_session(
    session_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    user_sessions: NamedDependency[UserSessions],
    access: NamedDependency[Access],
) -> None:
    """End a session of one's own or, with users.manage, of anybody: its tokens are good no more."""
    await user_sessions.end(context, session_id)
    access.forget_session(session_id)


auth_router = Router(
    "/api/v1",
    route_handlers=[
        login,
        refresh,
        logout,
        change_own_password,
        who_am_i,
        list_sessions,
        end_session,
    ],
    tags=["auth"],
)
