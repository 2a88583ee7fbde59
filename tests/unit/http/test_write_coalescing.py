"""The head and the body of an answer are written together, in order, and nothing stays behind."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from hetuflow_server.http.connections import HttpConnection
from hetuflow_server.http.write_coalescing import JoiningTransport
from tests.support.http.transports import Written
from tests.support.waiting import wait_until_async

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"
MUCH = b"x" * 100_000


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


async def test_what_is_whole_leaves_at_once_and_behind_what_was_held() -> None:
    transport, writes = joining()
    transport.write(b"held")
    transport.write_whole(HEAD)
    assert writes == [b"held", HEAD]


async def test_uvicorn_answers_in_one_write() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"4")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"body"})

    config = uvicorn.Config(app, http=HttpConnection, lifespan="off", log_config=None)
    config.load()
    protocol, written = HttpConnection(config, ServerState(), {}), Written()
    protocol.connection_made(cast("asyncio.Transport", written))
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
    await wait_until_async(lambda: bool(written.writes), what="an answer")
    (answer,) = written.writes
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nbody")


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
