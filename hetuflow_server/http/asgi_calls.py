"""Direct calls served over plain ASGI: slower, but without any private part of uvicorn.

The server uses this path when uvicorn's protocol class lacks a part that `connections.py` extends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from hetuflow_core.runtime.logging import bind_request
from hetuflow_server.http.direct_calls import DirectAnswer, DirectCall, HungUp, too_large
from hetuflow_server.http.request_log import log_answer, name_request


class AsgiCalls:
    """Serves these calls by their paths; all other requests go to the application."""

    def __init__(self, app: ASGIApp, calls: Mapping[str, DirectCall]) -> None:
        self._app = app
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = self._calls.get(scope["path"]) if scope["type"] == ScopeType.HTTP else None
        if call is None or scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        now = asyncio.get_running_loop().time
        began = now()
        request = AsgiRequest(call, scope, receive)
        with bind_request(request_id=request.request_id, trace_id=request.trace_id):
            try:
                answer = await (_answer_or_hang_up(call, request) if call.waits else call.answer(request))
            except HungUp:
                return
            await _send(answer, request.request_id, send)
            log_answer(request.method, request.path, answer.status, now() - began)


class AsgiRequest:
    def __init__(self, call: DirectCall, scope: HTTPScope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path = scope["path"]
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self.trace_id, self.request_id = name_request(self.headers)
        self._call = call
        self._receive = receive
        self._whole = asyncio.Event()

    async def body(self) -> bytes:
        """Return the body; raises TooLarge as soon as it is too large, and HungUp."""
        parts, size, more = list[bytes](), 0, True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise HungUp
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._call.most_body:
                raise too_large(self._call)
            more = message.get("more_body", False)
        self._whole.set()
        return b"".join(parts)

    async def hung_up(self) -> None:
        """Return when the caller has closed the connection after its request."""
        await self._whole.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _answer_or_hang_up(call: DirectCall, request: AsgiRequest) -> DirectAnswer:
    """Return the answer; if the caller hangs up first, cancel the call and raise HungUp."""
    answering = asyncio.ensure_future(call.answer(request))
    hanging_up = asyncio.ensure_future(request.hung_up())
    try:
        await asyncio.wait({answering, hanging_up}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise HungUp
        return answering.result()
    finally:
        answering.cancel()
        hanging_up.cancel()
        await asyncio.gather(answering, hanging_up, return_exceptions=True)


async def _send(answer: DirectAnswer, request_id: str, send: Send) -> None:
    headers = {
        "content-type": answer.media_type,
        "content-length": str(len(answer.body)),
        "x-request-id": request_id,
        **(answer.headers or {}),
    }
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})
