"""Calls that go straight from their connection to whoever serves them, and back in one write.

ASGI hands a request over in messages: a dictionary for its head, an event for its body, a task that waits for
the caller to hang up, two messages for the answer. For the small calls of agents that is most of what a
request costs. Here a call begins when it has come whole, in one task, which a hang-up breaks off if its
answer would have to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from hetuflow_core.errors import TooLarge
from hetuflow_core.runtime.logging import bind_request
from hetuflow_server.http.request_log import log_answer, name_request
from hetuflow_server.http.write_coalescing import JoiningTransport

# Whoever sends more than this is asked first who it is: what comes unasked is not all kept in memory.
_SMALL_BODY = 64 * 1024
_STATUS_LINES = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}
_CLOSE = b"connection: close\r\n"


class HungUp(Exception):
    """The caller has closed the connection: nobody is there to be answered."""


class DirectAnswer(NamedTuple):
    status: int
    media_type: str
    body: bytes
    headers: Mapping[str, str] | None = None


class CallRequest(Protocol):
    """What a direct call reads of its request, whichever way the request came."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def headers(self) -> Mapping[bytes, bytes]: ...

    @property
    def trace_id(self) -> str: ...

    async def body(self) -> bytes: ...


class DirectCall(Protocol):
    """What is served under one path; errors are its own to turn into answers."""

    # Of its body, in bytes.
    most_body: int
    # The answer may take long, and is not wanted any more once the caller has hung up.
    waits: bool

    async def answer(self, request: CallRequest) -> DirectAnswer: ...


def too_large(call: DirectCall) -> TooLarge:
    return TooLarge(f"A message has {call.most_body:,} bytes at most: send less at once.")


class ExchangeConnection(Protocol):
    """What an exchange asks of the connection it is on."""

    transport: JoiningTransport

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def default_headers(self) -> bytes: ...

    def start(self, serving: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...

    def note_answered(self) -> None: ...


class _NoWaiter:
    """Who would be woken up by what happens to an exchange if it were uvicorn's."""

    @staticmethod
    def set() -> None:
        pass


class Exchange:
    """One call and its answer; to uvicorn it looks like a cycle of its own."""

    __slots__ = (
        *("disconnected", "headers", "keep_alive", "method", "path", "response_complete", "trace_id"),
        *("_call", "_its_turn", "_line", "_more", "_parts", "_serving", "_size", "_whole"),
    )
    message_event = _NoWaiter()

    def __init__(
        self,
        line: ExchangeConnection,
        call: DirectCall,
        method: str,
        path: str,
        headers: Mapping[bytes, bytes],
        *,
        keep_alive: bool,
    ) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.trace_id = ""
        self.keep_alive = keep_alive
        self.disconnected = False
        self.response_complete = False
        self._line = line
        self._call = call
        self._parts: list[bytes] = []
        self._size = 0
        self._whole = False
        # Whether those that came before it on the same connection have been answered.
        self._its_turn = False
        self._serving: asyncio.Task[None] | None = None
        self._more: asyncio.Future[None] | None = None

    def take_turn(self) -> None:
        self._its_turn = True
        self._begin()

    def take_part(self, part: bytes) -> None:
        """Take a part of the body; what is too much is not kept, and nothing that comes behind it."""
        self._size += len(part)
        if self._size <= self._call.most_body:
            self._parts.append(part)
        if self._size > _SMALL_BODY:
            if self._more is None:
                self._line.pause_reading()
            self._begin()
        self._wake()

    def take_end(self) -> None:
        self._whole = True
        self._begin()
        self._wake()

    def hang_up(self) -> None:
        """The connection is gone: a call that waits is broken off in this moment."""
        self.disconnected = True
        self._wake()
        if self._call.waits and self._serving is not None:
            self._serving.cancel()

    async def body(self) -> bytes:
        """Return the body, once it is there; raises TooLarge as soon as it is, and HungUp."""
        while self._size <= self._call.most_body and not self._whole:
            if self.disconnected:
                raise HungUp
            self._more = asyncio.get_running_loop().create_future()
            self._line.resume_reading()
            await self._more
        if self._size > self._call.most_body:
            raise too_large(self._call)
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def _begin(self) -> None:
        if self._its_turn and self._serving is None and (self._whole or self._size > _SMALL_BODY):
            self._serving = self._line.start(self._serve())

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    async def _serve(self) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        self.trace_id, request_id = name_request(self.headers)
        try:
            with bind_request(request_id=request_id, trace_id=self.trace_id):
                answer = await self._call.answer(self)
                self._send(answer, request_id)
                log_answer(self.method, self.path, answer.status, now() - began)
        except HungUp:
            pass
        except asyncio.CancelledError:
            if not self.disconnected:
                raise
        finally:
            if not self.response_complete:
                self._line.transport.close()

    def _send(self, answer: DirectAnswer, request_id: str) -> None:
        self.response_complete = True
        if self.disconnected:
            return
        # What is left of a body that was refused is not read to its end.
        if not self._whole:
            self.keep_alive = False
        more = "".join([f"{name}: {value}\r\n" for name, value in (answer.headers or {}).items()])
        head = (
            f"content-type: {answer.media_type}\r\ncontent-length: {len(answer.body)}\r\n"
            f"x-request-id: {request_id}\r\n{more}"
        )
        line = self._line
        line.transport.write_whole(
            b"".join(
                (
                    _STATUS_LINES[answer.status],
                    line.default_headers(),
                    head.encode("latin-1"),
                    b"" if self.keep_alive else _CLOSE,
                    b"\r\n",
                    b"" if self.method == "HEAD" else answer.body,
                )
            )
        )
        if not self.keep_alive:
            line.transport.close()
        line.note_answered()
