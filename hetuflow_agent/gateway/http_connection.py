"""Connections to one server: a request at a time on each, and kept open for the next.

What an agent says is one message to one place, and so is the answer. An engine that can do all of HTTP took
longer over an answer than everything else the agent does until a function begins.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from hetuflow_agent.gateway.codec import CONNECT_TIMEOUT, KEEPALIVE, MOST_CONNECTIONS, ServerAnswer

# A name with several addresses: how long each is waited for before the next is tried too.
_NEXT_ADDRESS: Final = 0.25
_FIRST_FINAL_STATUS: Final = 200
# An answer with none of these ends with its connection.
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class HttpConnections:
    """Sends whole requests; raises OSError when no whole answer comes."""

    def __init__(self, host: str, port: int, trust: ssl.SSLContext | None) -> None:
        self._host = host
        self._port = port
        self._trust = trust
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        # Those nobody uses, and since when; the one used last stands last.
        self._idle: list[tuple[HttpConnection, float]] = []
        self._used: set[HttpConnection] = set()

    async def exchange(self, request: bytes, patience: float) -> ServerAnswer:
        """`patience`: seconds that may pass without anything being heard."""
        if self._room.locked():
            async with asyncio.timeout(patience):
                await self._room.acquire()
        else:
            await self._room.acquire()
        try:
            wire = self._take() or await self._connect()
            self._used.add(wire)
            try:
                said = await wire.exchange(request, patience)
            finally:
                self._used.discard(wire)
                if wire.reusable:
                    self._idle.append((wire, asyncio.get_running_loop().time()))
                else:
                    wire.abort()
        finally:
            self._room.release()
        return said

    def close(self) -> None:
        for wire in (*self._used, *(wire for wire, _ in self._idle)):
            wire.abort()
        self._idle.clear()

    def _take(self) -> HttpConnection | None:
        """Return the one used last, if it is still open; let those go that were not used for long."""
        too_old = asyncio.get_running_loop().time() - KEEPALIVE
        while self._idle and self._idle[0][1] < too_old:
            self._idle.pop(0)[0].abort()
        while self._idle:
            wire, _ = self._idle.pop()
            if wire.reusable:
                return wire
        return None

    async def _connect(self) -> HttpConnection:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, wire = await asyncio.get_running_loop().create_connection(
                HttpConnection, self._host, self._port, ssl=self._trust, happy_eyeballs_delay=_NEXT_ADDRESS
            )
        return wire


class HttpConnection(asyncio.Protocol):
    """One connection; what follows the first request on it waits for the answer before."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        # While one is waited for.
        self._answer: asyncio.Future[ServerAnswer] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._in_body = False
        self._heard = 0.0
        self._watch: asyncio.TimerHandle | None = None
        # Whether another request may be made on it.
        self.reusable = False

    async def exchange(self, request: bytes, patience: float) -> ServerAnswer:
        if self._transport is None:
            raise ConnectionResetError("the connection was closed")
        # Unless the whole answer comes: what is left of it would be taken for the next one.
        self.reusable = False
        self._answer = self._loop.create_future()
        self._forget()
        self._heard = self._loop.time()
        self._watch = self._loop.call_later(patience, self._look_at_clock, patience)
        self._transport.write(request)
        try:
            return await self._answer
        finally:
            self._answer = None
            self._watch.cancel()

    def abort(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream, as asked for

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        if self._answer is None:
            self.abort()  # nothing was asked
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"what it answers is not the HTTP that was asked for: {error}"))

    def resume_writing(self) -> None:
        self._heard = self._loop.time()

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

    # What the parser calls.

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
            self._forget()
        elif self._answer is not None and not self._answer.done():
            self.reusable = self._parser.should_keep_alive()
            self._settle()

    def _forget(self) -> None:
        self._headers, self._parts, self._in_body = [], [], False

    def _look_at_clock(self, patience: float) -> None:
        left = self._heard + patience - self._loop.time()
        if left > 0:
            self._watch = self._loop.call_later(left, self._look_at_clock, patience)
        else:
            self._fail(TimeoutError("no answer in time"))

    def _settle(self) -> None:
        if self._answer is not None and not self._answer.done():
            status = self._parser.get_status_code()
            self._answer.set_result(ServerAnswer(status, self._headers, b"".join(self._parts)))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
