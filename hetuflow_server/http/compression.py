"""Answers in fewer bytes, where that is safe and costs nobody a wait.

Only whole answers of text: what is streamed (followed logs, changes, files) goes out as it comes. Never those
of routes that show a secret: of text that holds one beside something the asker chose, the length tells too
much. Agents' calls do not come this way at all.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from litestar.datastructures import MutableScopeHeaders
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPResponseStartEvent, Message, Receive, Scope, Send

from hetuflow_server.http.authorization import shows_secrets

# Less is not worth it; more is left to a thread.
_LEAST_BYTES: Final = 1_024
_MOST_BYTES_AT_ONCE: Final = 65_536
_LEVEL: Final = 5
# What makes zlib write the form that browsers call gzip.
_GZIP: Final = 16 + zlib.MAX_WBITS
_TEXT: Final = ("application/json", "application/problem+json", "application/vnd.oai.openapi+json", "text/")


def compressing(app: ASGIApp) -> ASGIApp:
    """Return the application with its answers compressed for who takes them so."""

    async def compressed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or not _wanted(scope["headers"]):
            await app(scope, receive, send)
            return
        handler: Any = scope.get("route_handler")
        if handler is None or shows_secrets(handler.opt):
            await app(scope, receive, send)
            return
        await app(scope, receive, _through(send))

    return compressed


def _wanted(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    offered = b",".join(value for name, value in headers if name == b"accept-encoding").lower()
    for one in offered.split(b","):
        coding, _, weight = one.partition(b";")
        if coding.strip() in {b"gzip", b"*"}:
            return weight.replace(b" ", b"") not in {b"q=0", b"q=0.0", b"q=0.00", b"q=0.000"}
    return False


def _through(send: Send) -> Callable[[Message], Awaitable[None]]:
    start: HTTPResponseStartEvent | None = None

    async def sent(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
            return
        if start is not None and message["type"] == "http.response.body":
            begun, start = start, None
            headers = MutableScopeHeaders(begun)
            if _is_text(headers):
                headers.extend_header_value("vary", "Accept-Encoding")
                body = message["body"]
                if (
                    not message.get("more_body")
                    and len(body) >= _LEAST_BYTES
                    and "content-encoding" not in headers
                ):
                    message["body"] = await _squeezed(body)
                    headers["content-encoding"] = "gzip"
                    headers["content-length"] = str(len(message["body"]))
            await send(begun)
        await send(message)

    return sent


def _is_text(headers: MutableScopeHeaders) -> bool:
    kind = headers.get("content-type", "")
    return kind.startswith(_TEXT) and not kind.startswith("text/event-stream")


async def _squeezed(body: bytes) -> bytes:
    if len(body) <= _MOST_BYTES_AT_ONCE:
        return _gzip(body)
    return await asyncio.to_thread(_gzip, body)


def _gzip(body: bytes) -> bytes:
    squeezer = zlib.compressobj(_LEVEL, wbits=_GZIP)
    return squeezer.compress(body) + squeezer.flush()
