"""Connections to one server: each carries one request at a time and stays open for the next one.

An agent sends one message to one address and gets one message back. With a client that supports all of
HTTP, an answer took longer than everything else that the agent does before a Python function begins.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import ClassVar, Final

import httpx
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from hetuflow_agent.gateway.codec import (
    CONNECT_TIMEOUT,
    KEEPALIVE,
    MOST_CONNECTIONS,
    MessageCodec,
    ServerAnswer,
)
from hetuflow_core.messages import GATEWAY_PATH

# For a name with several addresses: the delay before the next address is tried in addition.
_NEXT_ADDRESS: Final = 0.25
_FIRST_FINAL_STATUS: Final = 200
# An answer with none of these headers ends when its connection closes.
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class DirectTransport:
    """Sends requests over `HttpConnections`: one costs a tenth of a request with httpx."""

    failures: ClassVar = (OSError,)

    def __init__(self, codec: MessageCodec) -> None:
        url = httpx.URL(codec.server_url.rstrip("/") + GATEWAY_PATH)
        trust = codec.trust.context() if codec.encrypted else None
        self._connections = HttpConnections(url.raw_host.decode(), url.port or (443 if trust else 80), trust)
        self._path = url.raw_path
        self._headers = b"".join(
            b"%s: %s\r\n" % header
            for header in (
                (b"Host", url.netloc),
                *((name.encode(), value.encode()) for name, value in codec.headers().items()),
            )
        )

    async def post(self, path: str, content: bytes, patience: float) -> ServerAnswer:
        # One write for head and body: a separate head would wake the server twice.
        request = b"POST %s%s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s" % (
            *(self._path, path.encode(), self._headers),
            *(len(content), content),
        )
        return await self._connections.exchange(request, patience)

    async def close(self) -> None:
        self._connections.close()


class HttpConnections:
    """Sends whole requests; raises OSError when no whole answer comes."""

    def __init__(self, host: str, port: int, trust: ssl.SSLContext | None) -> None:
        self._host = host
        self._port = port
        self._trust = trust
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        # Unused connections with the time of their last use, in the order of that time.
        self._idle: list[tuple[HttpConnection, float]] = []
        self._used: set[HttpConnection] = set()

    async def exchange(self, request: bytes, patience: float) -> ServerAnswer:
        """`patience`: the longest time without any received data, in seconds."""
        if self._room.locked():
            async with asyncio.timeout(patience):
                await self._room.acquire()
        else:
            await self._room.acquire()
        try:
            connection = self._take() or await self._connect()
            self._used.add(connection)
            try:
                answer = await connection.exchange(request, patience)
            finally:
                self._used.discard(connection)
                if connection.reusable:
                    self._idle.append((connection, asyncio.get_running_loop().time()))
                else:
                    connection.abort()
        finally:
            self._room.release()
        return answer

    def close(self) -> None:
        for connection in (*self._used, *(connection for connection, _ in self._idle)):
            connection.abort()
        self._idle.clear()

    def _take(self) -> HttpConnection | None:
        """Return the connection used last if it is still open; close connections unused for long."""
        too_old = asyncio.get_running_loop().time() - KEEPALIVE
        while self._idle and self._idle[0][1] < too_old:
            self._idle.pop(0)[0].abort()
        while self._idle:
            connection, _ = self._idle.pop()
            if connection.reusable:
                return connection
        return None

    async def _connect(self) -> HttpConnection:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, connection = await asyncio.get_running_loop().create_connection(
                HttpConnection, self._host, self._port, ssl=self._trust, happy_eyeballs_delay=_NEXT_ADDRESS
            )
        return connection


class HttpConnection(asyncio.Protocol):
    """One connection. A request on it waits for the answer to the request before."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        # Set while a request waits for its answer.
        self._answer: asyncio.Future[ServerAnswer] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._in_body = False
        self._received_at = 0.0
        self._patience_timer: asyncio.TimerHandle | None = None
        # Whether another request may use the connection.
        self.reusable = False

    async def exchange(self, request: bytes, patience: float) -> ServerAnswer:
        if self._transport is None:
            raise ConnectionResetError("the connection was closed")
        # Until the whole answer has arrived: the rest of it would be read as the answer to the next request.
        self.reusable = False
        self._answer = self._loop.create_future()
        self._reset()
        self._received_at = self._loop.time()
        self._patience_timer = self._loop.call_later(patience, self._check_patience, patience)
        self._transport.write(request)
        try:
            return await self._answer
        finally:
            self._answer = None
            self._patience_timer.cancel()

    def abort(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream, as asked for

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        if self._answer is None:
            self.abort()  # data without a request
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"the answer is not valid HTTP: {error}"))

    def resume_writing(self) -> None:
        self._received_at = self._loop.time()

    def eof_received(self) -> bool:
        self.reusable = False
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        self._transport = None
        framed = any(name.lower() in _FRAMING for name, _ in self._headers)
        if error is None and self._in_body and not framed:
            self._settle()
        else:
            self._fail(error or ConnectionResetError("the connection was closed before the answer came"))

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_body = True

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < _FIRST_FINAL_STATUS:
            self._reset()
        elif self._answer is not None and not self._answer.done():
            self.reusable = self._parser.should_keep_alive()
            self._settle()

    def _reset(self) -> None:
        self._headers, self._parts, self._in_body = [], [], False

    def _check_patience(self, patience: float) -> None:
        left = self._received_at + patience - self._loop.time()
        if left > 0:
            self._patience_timer = self._loop.call_later(left, self._check_patience, patience)
        else:
            self._fail(TimeoutError("no answer in time"))

    def _settle(self) -> None:
        if self._answer is not None and not self._answer.done():
            status = self._parser.get_status_code()
            self._answer.set_result(ServerAnswer(status, self._headers, b"".join(self._parts)))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
