"""`/secrets`: values go in and never come out."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from litestar import Router, delete, get, patch, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.secrets import KeyRotation, Secret, SecretRequest, SecretValue
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.secrets.service import Secrets

_CHANGE_PROBLEMS = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@get("/secrets", operation_id="list_secrets", opt=needs(Permission.SECRETS_READ), responses=problems())
async def list_secrets(
    context: NamedDependency[RequestContext],
    secrets: NamedDependency[Secrets],
    namespace: Annotated[str | None, QueryParameter()] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Secret]:
    """List secrets by namespace and name: what is known of them, never their values."""
    found, total = await secrets.list_secrets(
        context,
        namespace=namespace,
        after=decode_cursor(cursor, tuple[str, str]),
        limit=limit,
        cap=TOTAL_CAP,
    )
    more = encode_cursor([found[limit - 1].namespace, found[limit - 1].name]) if len(found) > limit else None
    return Page(found[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@post(
    "/secrets",
    operation_id="create_secret",
    opt=needs(Permission.SECRETS_WRITE, kept=False),
    responses=_CHANGE_PROBLEMS,
)
async def create_secret(
    data: JSONBody[SecretRequest],
    context: NamedDependency[RequestContext],
    secrets: NamedDependency[Secrets],
) -> Secret:
    """Make a secret that jobs of the namespace may use."""
    return await secrets.create(context, data.namespace, data.name, data.value)


@get(
    "/secrets/{namespace:str}/{name:str}",
    operation_id="get_secret",
    opt=needs(Permission.SECRETS_READ),
    responses=problems(HTTPStatus.NOT_FOUND),
)
async def get_secret(
    namespace: FromPath[str],
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    secrets: NamedDependency[Secrets],
) -> Secret:
    """Say what is known of a secret, and which jobs use it."""
    return await secrets.secret(context, namespace, name)


@put(
    "/secrets/{namespace:str}/{name:str}",
    operation_id="set_secret",
    opt=needs(Permission.SECRETS_WRITE),
    responses=_CHANGE_PROBLEMS,
)
async def set_secret(
    namespace: FromPath[str],
    name: FromPath[str],
    data: JSONBody[SecretValue],
    context: NamedDependency[RequestContext],
    secrets: NamedDependency[Secrets],
) -> Secret:
    """Give a secret a value; it is made if there is none, and tasks that start from now on get the value."""
    return await secrets.set(context, namespace, name, data.value)


@patch(
    "/secrets/{namespace:str}/{name:str}",
    operation_id="rotate_secret",
    opt=needs(Permission.SECRETS_WRITE),
    responses=_CHANGE_PROBLEMS,
)
async def rotate_secret(
    namespace: FromPath[str],
    name: FromPath[str],
    data: JSONBody[SecretValue],
    context: NamedDependency[RequestContext],
    secrets: NamedDependency[Secrets],
) -> Secret:
    """Give a secret that is there a new value."""
    return await secrets.set(context, namespace, name, data.value, must_exist=True)


@delete(
    "/secrets/{namespace:str}/{name:str}",
    operation_id="delete_secret",
    opt=needs(Permission.SECRETS_WRITE),
    responses=_CHANGE_PROBLEMS,
)
async def delete_secret(
    namespace: FromPath[str],
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    secrets: NamedDependency[Secrets],
) -> None:
    """Delete a secret that no job uses, with all its values."""
    await secrets.delete(context, namespace, name)


@post(
    "/secrets/rotate-key",
    operation_id="rotate_key",
    opt=needs(Permission.SECRETS_ROTATE_KEY, kept=False),
    status_code=HTTPStatus.OK,
    responses=problems(HTTPStatus.CONFLICT),
)
async def rotate_key(
    context: NamedDependency[RequestContext], secrets: NamedDependency[Secrets]
) -> KeyRotation:
    """Encrypt the next secrets under a former key with the servers' newest; repeat until none remains."""
    return await secrets.rotate_key(context)


secrets_router = Router(
    "/api/v1",
    route_handlers=[
        list_secrets,
        create_secret,
        get_secret,
        set_secret,
        rotate_secret,
        delete_secret,
        rotate_key,
    ],
    tags=["secrets"],
)
