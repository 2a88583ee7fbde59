"""The agent's own connections to its server: whole requests, whole answers, and nothing on a broken one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hetuflow_agent.gateway.http_connection import HttpConnections
from tests.support.waiting import wait_until_async

_PATIENCE = 30.0
_REQUEST = b"POST /x HTTP/1.1\r\nHost: server.test\r\nContent-Length: 2\r\n\r\n{}"
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Word: yes\r\n\r\ntold"


class Server:
    """Answers each request with the next of these, on however many connections it is asked."""

    def __init__(self, *answers: bytes, close_after: bool = False) -> None:
        self._answers = list(answers)
        self._close_after = close_after
        self.connections = 0
        self.asked: list[bytes] = []
        self.was_asked = asyncio.Event()
        self.gone = asyncio.Event()
        self.serving: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.serving.add(asyncio.current_task())
        while request := await reader.read(65_536):
            self.asked.append(request)
            self.was_asked.set()
            if self._answers:
                writer.write(self._answers.pop(0))
                await writer.drain()
            if self._close_after:
                break
        writer.close()
        self.gone.set()


@asynccontextmanager
async def wires_to(server: Server) -> AsyncIterator[HttpConnections]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    http_connections = HttpConnections("127.0.0.1", listening.sockets[0].getsockname()[1], None)
    async with listening:
        yield http_connections
        http_connections.close()
        await asyncio.gather(*filter(None, server.serving))


async def test_one_connection_serves_requests_that_follow_each_other() -> None:
    server = Server(_ANSWER, _ANSWER)
    async with wires_to(server) as http_connections:
        for _ in range(2):
            said = await http_connections.exchange(_REQUEST, _PATIENCE)
            assert (said.status, said.body) == (200, b"told")
            assert (b"X-Word", b"yes") in said.headers
    assert server.asked == [_REQUEST, _REQUEST]
    assert server.connections == 1


async def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    server = Server(_ANSWER, _ANSWER)
    async with wires_to(server) as http_connections:
        await asyncio.gather(*(http_connections.exchange(_REQUEST, _PATIENCE) for _ in range(2)))
    assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nto\r\n2\r\nld\r\n0\r\n\r\n", b"told"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + _ANSWER, b"told"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
async def test_answers_in_other_forms(answer: bytes, body: bytes) -> None:
    async with wires_to(Server(answer, _ANSWER)) as http_connections:
        assert (await http_connections.exchange(_REQUEST, _PATIENCE)).body == body
        assert (await http_connections.exchange(_REQUEST, _PATIENCE)).body == b"told"


async def test_an_answer_may_end_with_its_connection() -> None:
    server = Server(b"HTTP/1.0 200 OK\r\n\r\nall of it", _ANSWER, close_after=True)
    async with wires_to(server) as http_connections:
        assert (await http_connections.exchange(_REQUEST, _PATIENCE)).body == b"all of it"


async def test_half_an_answer_is_none() -> None:
    server = Server(_ANSWER[:-1], close_after=True)
    async with wires_to(server) as http_connections:
        with pytest.raises(ConnectionResetError):
            await http_connections.exchange(_REQUEST, _PATIENCE)


async def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    closing = _ANSWER.replace(b"X-Word: yes", b"Connection: close")
    server = Server(closing, _ANSWER)
    async with wires_to(server) as http_connections:
        for _ in range(2):
            assert (await http_connections.exchange(_REQUEST, _PATIENCE)).body == b"told"
    assert server.connections == 2


async def test_a_connection_that_was_closed_while_nobody_used_it_is_not_used_again() -> None:
    server = Server(_ANSWER, _ANSWER, close_after=True)
    async with wires_to(server) as http_connections:
        await http_connections.exchange(_REQUEST, _PATIENCE)
        await wait_until_async(lambda: not http_connections._idle[0][0].reusable)
        assert (await http_connections.exchange(_REQUEST, _PATIENCE)).body == b"told"
    assert server.connections == 2


async def test_a_request_that_is_broken_off_hangs_up() -> None:
    server = Server()
    async with wires_to(server) as http_connections:
        asking = asyncio.create_task(http_connections.exchange(_REQUEST, _PATIENCE))
        await server.was_asked.wait()
        asking.cancel()
        await server.gone.wait()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_silence_is_waited_for_no_longer_than_there_is_patience() -> None:
    async with wires_to(Server()) as http_connections:
        with pytest.raises(TimeoutError):
            await http_connections.exchange(_REQUEST, 0.01)


async def test_what_is_no_http_is_no_answer() -> None:
    async with wires_to(Server(b"SSH-2.0-OpenSSH\r\n")) as http_connections:
        with pytest.raises(ConnectionError, match="not valid HTTP"):
            await http_connections.exchange(_REQUEST, _PATIENCE)


async def test_a_second_answer_is_not_taken_for_that_of_the_next_request() -> None:
    server = Server(_ANSWER + _ANSWER.replace(b"told", b"lies"), _ANSWER)
    async with wires_to(server) as http_connections:
        for _ in range(2):
            assert (await http_connections.exchange(_REQUEST, _PATIENCE)).body == b"told"
    assert server.connections == 2


async def test_more_requests_than_there_are_connections_wait_for_one() -> None:
    server = Server(*[_ANSWER] * 20)
    async with wires_to(server) as http_connections:
        said = await asyncio.gather(*(http_connections.exchange(_REQUEST, _PATIENCE) for _ in range(20)))
    assert [one.body for one in said] == [b"told"] * 20
    assert server.connections <= 8
