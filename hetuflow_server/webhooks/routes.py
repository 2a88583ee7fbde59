"""`/webhooks`, and `/hooks`, where messages of others come in."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from litestar import Request, Router, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.webhooks import (
    Webhook,
    WebhookDelivery,
    WebhookReceipt,
    WebhookRedelivery,
    WebhookRequest,
)
from hetuflow_server.http.authorization import RouteAccess, needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.webhooks.service import MOST_BODY_BYTES, Webhooks

_PROBLEMS = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
_READ, _WRITE = needs(Permission.WEBHOOKS_READ), needs(Permission.WEBHOOKS_WRITE)
_PATH = "/webhooks/{namespace:str}/{name:str}"


@get("/webhooks", operation_id="list_webhooks", opt=_READ, responses=problems())
async def list_webhooks(
    context: NamedDependency[RequestContext],
    webhooks: NamedDependency[Webhooks],
    namespace: Annotated[str | None, QueryParameter()] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Webhook]:
    """List webhooks by namespace and name, with how much waits and how much was given up."""
    found, total = await webhooks.list_webhooks(
        context,
        namespace=namespace,
        after=decode_cursor(cursor, tuple[str, str]),
        limit=limit,
        cap=TOTAL_CAP,
    )
    more = encode_cursor([found[limit - 1].namespace, found[limit - 1].name]) if len(found) > limit else None
    return Page(found[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@get(_PATH, operation_id="get_webhook", opt=_READ, responses=_PROBLEMS)
async def get_webhook(
    namespace: FromPath[str],
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    webhooks: NamedDependency[Webhooks],
) -> Webhook:
    """One webhook, and how much it has still to deliver."""
    return await webhooks.webhook(context, namespace, name)


@put(_PATH, operation_id="set_webhook", opt=_WRITE, responses=_PROBLEMS)
async def set_webhook(
    namespace: FromPath[str],
    name: FromPath[str],
    data: JSONBody[WebhookRequest],
    context: NamedDependency[RequestContext],
    webhooks: NamedDependency[Webhooks],
) -> Webhook:
    """Make a webhook, or make it what is sent; the rules are those of a document of kind `webhook`."""
    return await webhooks.set(context, namespace, name, data)


@delete(_PATH, operation_id="delete_webhook", opt=_WRITE, responses=_PROBLEMS)
async def delete_webhook(
    namespace: FromPath[str],
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    webhooks: NamedDependency[Webhooks],
) -> None:
    """Delete a webhook with what it had still to deliver."""
    await webhooks.delete(context, namespace, name)


@get(f"{_PATH}/deliveries", operation_id="list_webhook_deliveries", opt=_READ, responses=_PROBLEMS)
async def list_webhook_deliveries(
    namespace: FromPath[str],
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    webhooks: NamedDependency[Webhooks],
    delivery_state: Annotated[str | None, QueryParameter(name="state")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[WebhookDelivery]:
    """List what waits to be delivered, and what was given up (`state=dead`), with why."""
    after = decode_cursor(cursor, UUID)
    found = await webhooks.deliveries(
        context, namespace, name, state=delivery_state, after=after, limit=limit
    )
    more = encode_cursor(found[limit - 1].id) if len(found) > limit else None
    return Page(found[:limit], more, min(len(found), limit), len(found) > limit or after is not None)


@post(
    f"{_PATH}/redeliver",
    operation_id="redeliver_webhook",
    opt=_WRITE,
    status_code=HTTPStatus.OK,
    responses=_PROBLEMS,
)
async def redeliver_webhook(
    namespace: FromPath[str],
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    webhooks: NamedDependency[Webhooks],
    delivery_id: Annotated[UUID | None, QueryParameter()] = None,
) -> WebhookRedelivery:
    """Have tried again what was given up: one delivery, or all of them."""
    return WebhookRedelivery(await webhooks.send_again(context, namespace, name, delivery_id))


@post(
    "/hooks/{namespace:str}/{name:str}",
    operation_id="receive_webhook",
    opt=needs(RouteAccess.OPEN),
    status_code=HTTPStatus.ACCEPTED,
    request_max_body_size=MOST_BODY_BYTES,
    responses=problems(HTTPStatus.CONFLICT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
)
async def receive_webhook(
    namespace: FromPath[str],
    name: FromPath[str],
    request: Request[Any, Any, Any],
    context: NamedDependency[RequestContext],
    webhooks: NamedDependency[Webhooks],
) -> WebhookReceipt:
    """Record a signed message as an event. The headers are those of Standard Webhooks."""
    return await webhooks.receive(context, namespace, name, request.headers, await request.body())


webhooks_router = Router(
    "/api/v1",
    route_handlers=[
        list_webhooks,
        get_webhook,
        set_webhook,
        delete_webhook,
        list_webhook_deliveries,
        redeliver_webhook,
        receive_webhook,
    ],
    tags=["webhooks"],
)
