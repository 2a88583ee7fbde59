"""Calls past ASGI: begun when they are whole, answered in one write and in order, broken off by a hang-up."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from hetuflow_core.errors import TooLarge
from hetuflow_server.http.connections import HttpConnection, connections_with
from hetuflow_server.http.direct_calls import CallRequest, DirectAnswer, Exchange
from tests.support.garbage import garbage_of
from tests.support.http.transports import Written

MOST = 200_000


class Echo:
    """Answers with what it was sent, once it may; notes what became of each call."""

    most_body = MOST

    def __init__(self, *, waits: bool = False) -> None:
        self.waits = waits
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.begun: list[str] = []
        self.ended: list[str] = []

    async def answer(self, request: CallRequest) -> DirectAnswer:
        self.begun.append(request.method)
        try:
            await self.may_answer.wait()
            body = await request.body()
        except BaseException as error:
            self.ended.append(type(error).__name__)
            if not isinstance(error, TooLarge):
                raise
            return DirectAnswer(413, "text/plain", b"too large", {"why": "size"})
        self.ended.append("answered")
        return DirectAnswer(200, "text/plain", body)


class Caller:
    """One connection, on which bytes come in and go out."""

    def __init__(self, call: Echo) -> None:
        self.app_saw: list[str] = []
        config = uvicorn.Config(self._app, interface="asgi3", lifespan="off", log_config=None)
        config.load()
        self.state = ServerState()
        self.state.default_headers = [(b"date", b"today")]
        self.transport = Written()
        self.connection: HttpConnection = connections_with({"/call": call})(config, self.state, {})
        self.connection.connection_made(cast("asyncio.Transport", self.transport))

    async def send(self, data: bytes) -> None:
        self.connection.data_received(data)
        await turns()

    async def hang_up(self) -> None:
        self.connection.connection_lost(None)
        await turns()

    @property
    def writes(self) -> list[bytes]:
        return self.transport.writes

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.app_saw.append(scope["path"])
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


async def turns(count: int = 8) -> None:
    """Let the loop turn; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)


def post(body: bytes, *headers: bytes, path: bytes = b"/call", version: bytes = b"1.1") -> bytes:
    head = [b"POST %b HTTP/%b" % (path, version), b"host: here", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join([*head, b"", body])


async def test_a_call_is_answered_in_one_write_and_the_connection_is_kept() -> None:
    caller = Caller(Echo())
    for body in (b"one", b"two"):
        await caller.send(post(body, b"X-Request-Id: mine"))
    assert caller.writes == [
        b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n"
        b"x-request-id: mine\r\n\r\n" + body
        for body in (b"one", b"two")
    ]
    assert caller.state.total_requests == 2
    assert not caller.state.tasks


async def test_a_call_without_a_name_is_named_after_its_trace() -> None:
    caller = Caller(Echo())
    trace = b"0af7651916cd43dd8448eb211c80319c"
    await caller.send(post(b"", b"traceparent: 00-%b-b7ad6b7169203331-01" % trace))
    await caller.send(post(b"", b"x-request-id: not harmless"))
    assert b"x-request-id: %b\r\n" % trace in caller.writes[0]
    assert b"harmless" not in caller.writes[1]
    assert b"x-request-id: " in caller.writes[1]


async def test_a_call_begins_when_it_is_whole() -> None:
    echo = Echo()
    caller = Caller(echo)
    whole = post(b"in parts")
    for at in range(len(whole) - 1):
        await caller.send(whole[at : at + 1])
    assert echo.begun == []
    await caller.send(whole[-1:])
    assert caller.writes[0].endswith(b"\r\n\r\nin parts")


async def test_calls_on_one_connection_are_answered_in_their_order() -> None:
    echo = Echo()
    caller = Caller(echo)
    echo.may_answer.clear()
    await caller.send(post(b"first") + post(b"", path=b"/other") + post(b"last"))
    assert echo.begun == ["POST"]
    assert not caller.transport.reading
    echo.may_answer.set()
    await turns(20)
    assert [answer.rpartition(b"\r\n")[2] for answer in caller.writes] == [b"first", b"", b"last"]
    assert caller.app_saw == ["/other"]
    assert caller.transport.reading


async def test_what_is_no_call_goes_to_the_application() -> None:
    echo = Echo()
    caller = Caller(echo)
    for path in (b"/call/more", b"/cal", b"/c%61ll/"):
        await caller.send(post(b"", path=path))
    assert caller.app_saw == ["/call/more", "/cal", "/call/"]
    await caller.send(post(b"asked", path=b"/call?why=not"))
    assert echo.begun == ["POST"]


async def test_a_wait_ends_in_the_moment_its_caller_is_gone() -> None:
    echo = Echo(waits=True)
    caller = Caller(echo)
    echo.may_answer.clear()
    await caller.send(post(b"waits"))
    assert (echo.begun, echo.ended) == (["POST"], [])
    await caller.hang_up()
    assert echo.ended == ["CancelledError"]
    assert not caller.state.tasks
    assert caller.writes == [b"closed"] * len(caller.writes)


async def test_a_wait_ends_with_its_connection_also_if_more_was_asked_behind_it() -> None:
    echo = Echo(waits=True)
    caller = Caller(echo)
    echo.may_answer.clear()
    await caller.send(post(b"waits") + post(b"behind"))
    await caller.hang_up()
    assert (echo.begun, echo.ended) == (["POST"], ["CancelledError"])
    assert not caller.state.tasks


async def test_a_head_alone_is_answered_without_a_body() -> None:
    caller = Caller(Echo())
    await caller.send(post(b"said").replace(b"POST", b"HEAD", 1))
    assert b"\r\ncontent-length: 4\r\n" in caller.writes[0]
    assert caller.writes[0].endswith(b"\r\n\r\n")


async def test_what_does_not_wait_is_done_whoever_is_there_to_hear() -> None:
    echo = Echo()
    caller = Caller(echo)
    echo.may_answer.clear()
    await caller.send(post(b"reports"))
    await caller.hang_up()
    echo.may_answer.set()
    await turns()
    assert echo.ended == ["answered"]
    assert caller.writes == [b"closed"] * len(caller.writes)


async def test_a_caller_that_goes_before_it_has_said_all_is_forgotten() -> None:
    echo = Echo()
    caller = Caller(echo)
    await caller.send(post(b"x" * 100_000)[:-1])
    assert echo.begun == ["POST"]
    await caller.hang_up()
    assert echo.ended == ["HungUp"]
    assert not caller.state.tasks


async def test_of_a_large_body_no_more_comes_before_it_is_asked_for() -> None:
    echo = Echo()
    caller = Caller(echo)
    echo.may_answer.clear()
    whole = post(b"x" * 150_000)
    await caller.send(whole[:70_000])
    assert echo.begun == ["POST"]
    assert not caller.transport.reading
    echo.may_answer.set()
    await turns()
    assert caller.transport.reading
    await caller.send(whole[70_000:140_000])
    assert caller.transport.reading
    await caller.send(whole[140_000:])
    assert caller.writes[0].endswith(b"\r\n\r\n" + b"x" * 150_000)


async def test_too_much_is_refused_before_it_is_all_there_and_not_kept() -> None:
    echo = Echo()
    caller = Caller(echo)
    await caller.send(post(b"x" * 1_000_000)[: MOST + 1_000])
    answer, *rest = caller.writes
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"\r\nwhy: size\r\n" in answer
    assert b"\r\nconnection: close\r\n" in answer
    assert rest == [b"closed"]
    await caller.send(b"x" * 1_000)
    assert echo.begun == ["POST"]


async def test_as_much_as_may_be_is_taken() -> None:
    caller = Caller(Echo())
    await caller.send(post(b"x" * MOST))
    assert caller.writes[0].startswith(b"HTTP/1.1 200 ")


async def test_who_asks_whether_to_go_on_is_told_so() -> None:
    caller = Caller(Echo())
    head, body = post(b"said", b"expect: 100-continue")[:-4], b"said"
    await caller.send(head)
    assert caller.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    await caller.send(body)
    assert caller.writes[1].endswith(b"\r\n\r\nsaid")


@pytest.mark.parametrize(("version", "header"), [(b"1.0", b"accept: */*"), (b"1.1", b"connection: close")])
async def test_a_connection_that_is_not_to_be_kept_is_closed(version: bytes, header: bytes) -> None:
    caller = Caller(Echo())
    await caller.send(post(b"last", header, version=version))
    assert b"\r\nconnection: close\r\n" in caller.writes[0]
    assert caller.writes[1:] == [b"closed"]


async def test_a_server_that_stops_lets_a_call_end_and_closes_behind_it() -> None:
    echo = Echo()
    caller = Caller(echo)
    echo.may_answer.clear()
    await caller.send(post(b"last"))
    caller.connection.shutdown()
    assert caller.writes == []
    echo.may_answer.set()
    await turns()
    assert caller.writes[0].endswith(b"\r\n\r\nlast")
    assert caller.writes[1:] == [b"closed"]


async def test_a_call_that_is_broken_off_by_the_server_leaves_no_open_connection() -> None:
    echo = Echo()
    caller = Caller(echo)
    echo.may_answer.clear()
    await caller.send(post(b"stuck"))
    (task,) = caller.state.tasks
    task.cancel()
    await turns()
    assert task.cancelled()
    assert caller.writes == [b"closed"]


@pytest.mark.parametrize("how", ["answered", "hung up"])
async def test_a_call_leaves_nothing_to_a_collection_of_garbage(how: str) -> None:
    """A thousand agents that wait would otherwise stop the server for long, again and again."""
    echo = Echo(waits=True)
    caller = Caller(echo)
    with garbage_of(Exchange) as garbage:
        if how == "hung up":
            echo.may_answer.clear()
        await caller.send(post(b"waits"))
        if how == "answered":
            await caller.send(post(b"again"))
        else:
            await caller.hang_up()
            del caller
    assert garbage == []
