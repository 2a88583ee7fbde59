"""The head and the body of an answer are written together, in order, and nothing stays behind."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from hetuflow_server.http.whole_answers import JoiningTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"
MUCH = b"x" * 100_000


class Written:
    """Where a transport would send to."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.writes.append(b"closed")

    def set_protocol(self, protocol: Any) -> None:
        self.writes.append(b"protocol")

    def is_closing(self) -> bool:
        return b"closed" in self.writes


def joining() -> tuple[JoiningTransport, list[bytes]]:
    written = Written()
    return JoiningTransport(cast("asyncio.Transport", written)), written.writes


async def test_a_head_and_its_body_are_one_write() -> None:
    transport, writes = joining()
    for _ in range(2):
        transport.write(HEAD)
        transport.write(b"body")
    assert writes == [HEAD + b"body"] * 2
    await asyncio.sleep(0)
    assert len(writes) == 2


async def test_a_head_without_a_body_leaves_with_the_step() -> None:
    transport, writes = joining()
    transport.write(HEAD)
    transport.write(b"")
    await asyncio.sleep(0)
    transport.write(b"data: 1\n\n")
    await asyncio.sleep(0)
    assert b"".join(writes) == HEAD + b"data: 1\n\n"


async def test_much_is_held_back_by_nothing() -> None:
    transport, writes = joining()
    transport.write(MUCH)
    assert writes == [MUCH]
    transport.write(HEAD)
    transport.write(MUCH)
    assert writes == [MUCH, HEAD + MUCH]


async def test_what_is_held_goes_before_an_end_or_another_protocol() -> None:
    transport, writes = joining()
    transport.write(b"first")
    transport.set_protocol(asyncio.Protocol())
    transport.write(b"last")
    assert not transport.is_closing()
    transport.close()
    assert writes == [b"first", b"protocol", b"last", b"closed"]
    assert transport.is_closing()
