"""`/users`."""

from __future__ import annotations

from http import HTTPStatus

from litestar import Router, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.identity import (
    GrantRequest,
    PasswordRequest,
    RevokeRequest,
    User,
    UserChange,
    UserRequest,
)
from hetuflow_core.resources.pages import Page
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.identity.users.service import Users
from hetuflow_server.requests.context import RequestContext

_MANAGE = needs(Permission.USERS_MANAGE)
_FOUND = problems(HTTPStatus.NOT_FOUND)
_CHANGED = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@get("/users", operation_id="list_users", opt=_MANAGE, responses=problems())
async def list_users(
    users: NamedDependency[Users], limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[User]:
    """List users by name."""
    found, total = await users.list_users(after=decode_cursor(cursor, str), limit=limit, cap=TOTAL_CAP)
    more = encode_cursor(found[limit - 1].name) if len(found) > limit else None
    return Page(found[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@post("/users", operation_id="create_user", opt=_MANAGE, responses=_CHANGED)
async def create_user(
    data: JSONBody[UserRequest], context: NamedDependency[RequestContext], users: NamedDependency[Users]
) -> User:
    """Make a user, with a role if one is given."""
    return await users.create(context, data)


@get("/users/{user:str}", operation_id="get_user", opt=_MANAGE, responses=_FOUND)
async def get_user(
    user: FromPath[str], context: NamedDependency[RequestContext], users: NamedDependency[Users]
) -> User:
    """One user with its grants."""
    return await users.user(context, user)


@patch("/users/{user:str}", operation_id="change_user", opt=_MANAGE, responses=_CHANGED)
async def change_user(
    user: FromPath[str],
    data: JSONBody[UserChange],
    context: NamedDependency[RequestContext],
    users: NamedDependency[Users],
) -> User:
    """Change how a user is called."""
    return await users.change(context, user, data.display_name)


@delete("/users/{user:str}", operation_id="delete_user", opt=_MANAGE, responses=_CHANGED)
async def delete_user(
    user: FromPath[str], context: NamedDependency[RequestContext], users: NamedDependency[Users]
) -> None:
    """Delete a user and its keys; what it has done keeps its name."""
    await users.delete(context, user)


@post(
    "/users/{user:str}/password",
    status_code=200,
    operation_id="set_user_password",
    opt=_MANAGE,
    responses=_CHANGED,
)
async def set_user_password(
    user: FromPath[str],
    data: JSONBody[PasswordRequest],
    context: NamedDependency[RequestContext],
    users: NamedDependency[Users],
) -> User:
    """Give a user another password, or none; whoever is logged in with the old one is logged out."""
    return await users.set_password(context, user, data.password)


@post(
    "/users/{user:str}/disable", status_code=200, operation_id="disable_user", opt=_MANAGE, responses=_CHANGED
)
async def disable_user(
    user: FromPath[str], context: NamedDependency[RequestContext], users: NamedDependency[Users]
) -> User:
    """Let a user in no more, nor its keys."""
    return await users.set_disabled(context, user, disabled=True)


@post(
    "/users/{user:str}/enable", status_code=200, operation_id="enable_user", opt=_MANAGE, responses=_CHANGED
)
async def enable_user(
    user: FromPath[str], context: NamedDependency[RequestContext], users: NamedDependency[Users]
) -> User:
    """Let a disabled user in again."""
    return await users.set_disabled(context, user, disabled=False)


@post("/users/{user:str}/grant", status_code=200, operation_id="grant_role", opt=_MANAGE, responses=_CHANGED)
async def grant_role(
    user: FromPath[str],
    data: JSONBody[GrantRequest],
    context: NamedDependency[RequestContext],
    users: NamedDependency[Users],
) -> User:
    """Grant a role in a namespace, or in all, in place of what was granted there before."""
    return await users.grant(context, user, data)


@post(
    "/users/{user:str}/revoke", status_code=200, operation_id="revoke_role", opt=_MANAGE, responses=_CHANGED
)
async def revoke_role(
    user: FromPath[str],
    data: JSONBody[RevokeRequest],
    context: NamedDependency[RequestContext],
    users: NamedDependency[Users],
) -> User:
    """Take back what was granted in a namespace, or in all."""
    return await users.revoke(context, user, data.namespace)


users_router = Router(
    "/api/v1",
    route_handlers=[
        *(list_users, create_user, get_user, change_user, delete_user, set_user_password),
        *(disable_user, enable_user, grant_role, revoke_role),
    ],
    tags=["users"],
)
