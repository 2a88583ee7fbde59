"""`Idempotency-Key`: what a POST with one is answered is kept, and is what it is answered again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Litestar, Request, Response
from litestar.enums import ScopeType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import OpenAPIHeader, Operation, Parameter, Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from hetuflow_core.errors import Invalid
from hetuflow_server.http.authorization import RouteAccess, context_of, declared, repeatable
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.problems import PROBLEM_JSON, answer_of
from hetuflow_server.requests.idempotency import (
    LONGEST_KEY,
    IdempotentRequest,
    IdempotentRequests,
    KeyedRequest,
)

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
_HEADER: Final = HEADER.lower().encode()
_UNDER_WAY: Final = "undertaking"
# Said of the message, not of what it says.
_NOT_KEPT: Final = frozenset({"content-length", "date", "connection", "vary"})


def repeating_with(
    idempotent_requests: IdempotentRequests, before: Callable[[Request[Any, Any, Any]], Awaitable[None]]
) -> Callable[[Request[Any, Any, Any]], Awaitable[Response[bytes] | None]]:
    """Return what is done `before` a request, and then begins it as one that may be repeated."""

    async def begin(request: Request[Any, Any, Any]) -> Response[bytes] | None:
        await before(request)
        key = request.headers.get(HEADER)
        access = declared(request.route_handler.opt)
        # Messages from elsewhere and logging in have no caller that a key could belong to.
        if key is None or request.method != "POST" or access in {None, RouteAccess.OPEN}:
            return None
        if not repeatable(request.route_handler.opt):
            raise Invalid(
                "Nothing of this call is kept, so it takes no idempotency key: send it without.",
                code="idempotency_key.unsupported",
            )
        address = [request.url.path.encode(), request.scope["query_string"]]
        asked = KeyedRequest(key, [b"POST", *address, await request.body()])
        begun = await idempotent_requests.begin(context_of(request), asked)
        if isinstance(begun, IdempotentRequest):
            request.scope["state"][_UNDER_WAY] = begun
            return None
        headers = {**dict(begun.headers), REPLAYED: "true"}
        media_type = headers.pop("content-type", "application/json")
        return Response(begun.body, status_code=begun.status, headers=headers, media_type=media_type)

    return begin


class IdempotencyMiddleware:
    """Holds an answer back until it is kept and what it tells of is committed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or not any(name == _HEADER for name, _ in scope["headers"]):
            await self._app(scope, receive, send)
            return
        # It must suit whoever asks next.
        scope["headers"] = [one for one in scope["headers"] if one[0] != b"accept-encoding"]
        state, said = scope.setdefault("state", {}), list[Message]()

        async def hold(message: Message) -> None:
            if _UNDER_WAY in state:
                said.append(message)
            else:
                await send(message)

        try:
            await self._app(scope, receive, hold)
            if _UNDER_WAY in state:
                said = await _settled(state[_UNDER_WAY], scope, said)
        finally:
            if _UNDER_WAY in state:
                await state.pop(_UNDER_WAY).abandon()
        for message in said:
            await send(message)


async def _settled(
    idempotent_request: IdempotentRequest, scope: HTTPScope, said: list[Message]
) -> list[Message]:
    """Keep a good answer; return what is to be said in the end."""
    status, headers = HTTPStatus(said[0]["status"]), said[0]["headers"]  # type: ignore[typeddict-item]
    if status >= HTTPStatus.BAD_REQUEST:
        await idempotent_request.abandon()
        return said
    texts = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
    body = b"".join(message.get("body", b"") for message in said[1:])  # type: ignore[misc]
    try:
        await idempotent_request.keep(status, [one for one in texts if one[0] not in _NOT_KEPT], body)
    except Exception as error:  # noqa: BLE001 - the answer was given by what could not be committed
        return _problem(error, scope)
    return said


def _problem(error: Exception, scope: HTTPScope) -> list[Message]:
    answer = answer_of(error, path=scope["path"], trace_id=scope["state"].get("trace_id"))
    body = msgspec.json.encode(answer.problem)
    headers = {"content-type": PROBLEM_JSON, "content-length": str(len(body)), **answer.headers}
    return [
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        },
        {"type": "http.response.body", "body": body, "more_body": False},
    ]


@dataclass
class KeyedOperation(Operation):
    """A call in the OpenAPI document that takes an idempotency key."""

    def __post_init__(self) -> None:
        self.parameters = [*(self.parameters or []), _PARAMETER]
        for status, answer in (self.responses or {}).items():
            if status.startswith("2"):
                answer.headers = {**(answer.headers or {}), REPLAYED: _REPLAYED_HEADER}  # type: ignore[union-attr]


_PARAMETER: Final = Parameter(
    HEADER,
    "header",
    description="Drawn by the caller: with the same key the same request is done once, and answered again.",
    schema=Schema(type=OpenAPIType.STRING, min_length=1, max_length=LONGEST_KEY),
)
_REPLAYED_HEADER: Final = OpenAPIHeader(
    Schema(type=OpenAPIType.STRING, enum=["true"]),
    description="The answer of an earlier request with this key.",
)


def declare_keys(app: Litestar) -> None:
    """Say in the OpenAPI document which calls take an idempotency key, and what they may then answer."""
    for handler in keyed_handlers(app):
        handler.operation_class = KeyedOperation
        handler.responses = {**problems(HTTPStatus.CONFLICT), **(handler.responses or {})}


def keyed_handlers(app: Litestar) -> list[HTTPRouteHandler]:
    return [
        handler
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        if "POST" in handler.http_methods
        and declared(handler.opt) not in {None, RouteAccess.OPEN}
        and repeatable(handler.opt)
    ]
