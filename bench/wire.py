"""A bare HTTP/1.1 connection that is kept open.

A full client library costs more than the server's own part of a small request, and here both share the
machine: what is measured should be the server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from bench.figure import BenchFailed

_HEAD_END = b"\r\n\r\n"
_LARGEST_ANSWER = 64 * 1024 * 1024


class Connection:
    def __init__(self, address: tuple[str, int], headers: Mapping[str, str]) -> None:
        self._address = address
        host, port = address
        common = {"Host": f"{host}:{port}", "Content-Type": "application/json", **headers}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in common.items())
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(*self._address, limit=_LARGEST_ANSWER)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def get(self, path: str) -> bytes:
        return await self._ask("GET", path, b"")

    async def post(self, path: str, body: bytes) -> bytes:
        return await self._ask("POST", path, body)

    async def _ask(self, method: str, path: str, body: bytes) -> bytes:
        if self._reader is None or self._writer is None:
            raise RuntimeError("the connection is not open")
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        try:
            status, length = parse_head(await self._reader.readuntil(_HEAD_END))
            answer = await self._reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            raise BenchFailed(f"The server closed the connection instead of answering {path}.") from error
        if not 200 <= status < 300:  # noqa: PLR2004  the range HTTP calls success
            raise BenchFailed(f"{method} {path} was answered with {status}: {answer[:500].decode()}")
        return answer


def parse_head(head: bytes) -> tuple[int, int]:
    """Status and length of an answer; one without a length would have to be chunked, which ours never are."""
    status_line, *lines = head.split(b"\r\n")
    for line in lines:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(status_line.split()[1]), int(value)
    raise BenchFailed(f"An answer came without a length: {head[:200].decode(errors='replace')}")
