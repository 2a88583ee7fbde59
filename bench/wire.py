"""A bare HTTP/1.1 connection that is kept open.

A full client library costs more than the server's own part of a small request, and here both share the
machine: what is measured should be the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self, cast

from bench.figure import BenchFailed

_HEAD_END = b"\r\n\r\n"


class Connection:
    def __init__(self, address: tuple[str, int], headers: Mapping[str, str]) -> None:
        self._address = address
        host, port = address
        common = {"Host": f"{host}:{port}", "Content-Type": "application/json", **headers}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in common.items())
        self._exchange: _Exchange | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        _, self._exchange = await loop.create_connection(_Exchange, *self._address)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._exchange:
            self._exchange.close()

    async def get(self, path: str) -> bytes:
        return await self._ask("GET", path, b"")

    async def post(self, path: str, body: bytes) -> bytes:
        return await self._ask("POST", path, body)

    async def _ask(self, method: str, path: str, body: bytes) -> bytes:
        if self._exchange is None:
            raise RuntimeError("the connection is not open")
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n"
        status, answer = await self._exchange.ask(head.encode() + body, path)
        if not 200 <= status < 300:  # noqa: PLR2004  the range HTTP calls success
            raise BenchFailed(f"{method} {path} was answered with {status}: {answer[:500].decode()}")
        return answer


class _Exchange(asyncio.Protocol):
    """One request at a time; what comes in is gathered until it is a whole answer."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._path = ""
        self._parts: list[bytes] = []
        # Of the whole answer, once its head is there, and what came of it; the status beside it.
        self._size = 0
        self._came = 0
        self._body_at = 0
        self._status = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    async def ask(self, request: bytes, path: str) -> tuple[int, bytes]:
        if self._transport is None or self._transport.is_closing():
            raise BenchFailed(f"The server closed the connection instead of answering {path}.")
        self._path = path
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._came += len(data)
        if not self._size and not self._read_head():
            return
        if self._came >= self._size and self._answer is not None:
            whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            answer, self._answer = self._answer, None
            self._parts, self._came, self._size = [], 0, 0
            if not answer.done():
                answer.set_result((self._status, whole[self._body_at :]))

    def connection_lost(self, _error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(
                BenchFailed(f"The server closed the connection instead of answering {self._path}.")
            )

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _read_head(self) -> bool:
        so_far = b"".join(self._parts)
        end = so_far.find(_HEAD_END)
        if end < 0:
            return False
        self._parts = [so_far]
        self._body_at = end + len(_HEAD_END)
        self._status, length = parse_head(so_far[:end])
        self._size = self._body_at + length
        return True


def parse_head(head: bytes) -> tuple[int, int]:
    """Status and length of an answer; one without a length would have to be chunked, which ours never are."""
    status_line, *lines = head.split(b"\r\n")
    for line in lines:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(status_line.split()[1]), int(value)
    raise BenchFailed(f"An answer came without a length: {head[:200].decode(errors='replace')}")
