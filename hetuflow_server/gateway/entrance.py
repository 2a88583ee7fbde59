"""The gateway's own entrance: agents' calls go by no framework, which would cost more than what they ask for.

Whatever is no call of an agent goes on to the application behind it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import msgspec
from litestar.enums import ScopeType
from litestar.exceptions import MethodNotAllowedException
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import TooLarge
from hetuflow_server.gateway.calls import CALLS, Call, Gateway
from hetuflow_server.http.credentials import credential_in
from hetuflow_server.http.problems import PROBLEM_JSON, answer_of

_PREFIX = f"{m.GATEWAY_PATH}/"
_encode = msgspec.json.Encoder().encode


class HungUp(Exception):
    """The caller has closed the connection: nobody is there to be answered."""


class Entrance:
    def __init__(self, gateway: Gateway, behind: ASGIApp) -> None:
        self._gateway = gateway
        self._behind = behind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP and scope["path"].startswith(_PREFIX):
            call = CALLS.get(scope["path"][len(_PREFIX) :])
            if call is not None:
                await self._answer(call, scope, receive, send)
                return
        await self._behind(scope, receive, send)

    async def _answer(self, call: Call[Any], scope: HTTPScope, receive: Receive, send: Send) -> None:
        try:
            payload = await self._serve(call, scope, receive)
        except HungUp:
            pass
        except Exception as error:  # noqa: BLE001 - the one place that turns errors of agents' calls into answers
            trace_id = scope.get("state", {}).get("trace_id")
            said = answer_of(error, path=scope["path"], trace_id=trace_id)
            await _send(send, said.status, PROBLEM_JSON, _encode(said.problem), said.headers)
        else:
            await _send(send, HTTPStatus.OK, "application/json", _envelope(call.answer_kind, payload))

    async def _serve(self, call: Call[Any], scope: HTTPScope, receive: Receive) -> Any:
        if scope["method"] != "POST":
            raise MethodNotAllowedException(
                "The calls of agents are made with POST.", headers={"Allow": "POST"}
            )
        agent = await self._gateway.access.agent(_credential(scope))
        asked = call.read(await _body(receive, call.most_body))
        if not call.waits:
            return await call.serve(self._gateway, agent, asked)
        async with WhileThere(receive):
            return await call.serve(self._gateway, agent, asked)


class WhileThere:
    """Breaks off its body when the caller hangs up: what it would have been given goes to others at once."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watching: asyncio.Task[None] | None = None
        self._hung_up = False

    async def __aenter__(self) -> Self:
        self._body = asyncio.current_task()
        self._watching = asyncio.create_task(self._await_hang_up(), name="watch a waiting poll")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watching is not None:
            self._watching.cancel()
        if self._hung_up and isinstance(error, asyncio.CancelledError) and self._body is not None:
            self._body.uncancel()
            raise HungUp from error

    async def _await_hang_up(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._body is not None:
            self._hung_up = True
            self._body.cancel()


def _credential(scope: HTTPScope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            return credential_in(value.decode("latin-1"))
    return None


async def _body(receive: Receive, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise HungUp
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise TooLarge(f"A message has {most:,} bytes at most: send less at once.")
        if not message.get("more_body"):
            return b"".join(parts)


def _envelope(kind: m.MessageKind, payload: Any) -> bytes:
    at = ids.EPOCH + timedelta(milliseconds=payload.server_time)
    return _encode(m.Envelope(ids.new_id(at, secrets.token_bytes(10)), payload.server_time, kind, payload))


async def _send(
    send: Send, status: HTTPStatus, media_type: str, body: bytes, headers: Mapping[str, str] | None = None
) -> None:
    all_headers = {"content-type": media_type, "content-length": str(len(body)), **(headers or {})}
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(name.lower().encode(), value.encode()) for name, value in all_headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})
