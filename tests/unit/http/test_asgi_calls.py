"""Direct calls over plain ASGI are answered, refused and cancelled as direct calls past ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from hetuflow_core.errors import TooLarge
from hetuflow_core.runtime.lifecycle import StopSwitch
from hetuflow_server.http import connections
from hetuflow_server.http.direct_calls import CallRequest, DirectAnswer
from hetuflow_server.http.listening import HttpServer, Listener
from tests.support.http.plain_http import UNENCRYPTED
from tests.support.waiting import wait_until_async

MOST = 200_000


class Echo:
    """Answers with the body of the request; a call that waits answers when the test allows it."""

    most_body = MOST

    def __init__(self, *, waits: bool) -> None:
        self.waits = waits
        self.may_answer = asyncio.Event()
        self.began = asyncio.Event()
        self.ended: list[str] = []

    async def answer(self, request: CallRequest) -> DirectAnswer:
        try:
            body = await request.body()
            self.began.set()
            if self.waits:
                await self.may_answer.wait()
        except TooLarge as error:
            return DirectAnswer(413, "text/plain", str(error).encode(), {"why": "size"})
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        self.ended.append("answered")
        return DirectAnswer(200, "text/plain", body)


class Serving:
    def __init__(self, url: str) -> None:
        self.url = url
        self.echo = Echo(waits=False)
        self.waiting = Echo(waits=True)


async def app(scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    monkeypatch.setattr(connections, "_PRIVATE_PARTS", ("what_uvicorn_never_had",))
    listener = Listener("127.0.0.1", 0)
    await listener.start()
    served = Serving(listener.url)
    calls = {"/echo": served.echo, "/waiting": served.waiting}
    server = HttpServer(app, calls, listener, StopSwitch(), stop_timeout=5)
    await server.start()
    yield served
    await server.stop()


@pytest.fixture
async def client(served: Serving) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.url, verify=UNENCRYPTED) as client:
        yield client


async def test_calls_are_answered_and_other_paths_are_the_applications(client: httpx.AsyncClient) -> None:
    answer = await client.post("/echo", content=b"said", headers={"X-Request-Id": "mine"})
    assert (answer.status_code, answer.content) == (200, b"said")
    assert (answer.headers["content-type"], answer.headers["x-request-id"]) == ("text/plain", "mine")
    assert (await client.post("/echo/more")).status_code == 404
    head = await client.head("/echo")
    assert (head.status_code, head.content) == (200, b"")


async def test_a_body_that_is_too_large_is_refused(client: httpx.AsyncClient) -> None:
    assert (await client.post("/echo", content=b"x" * MOST)).status_code == 200
    refused = await client.post("/echo", content=b"x" * (MOST + 1))
    assert (refused.status_code, refused.headers["why"]) == (413, "size")
    assert "200,000 bytes at most" in refused.text


async def test_a_call_that_waits_is_answered_when_it_may(served: Serving, client: httpx.AsyncClient) -> None:
    asking = asyncio.create_task(client.post("/waiting", content=b"said"))
    await served.waiting.began.wait()
    served.waiting.may_answer.set()
    assert (await asking).content == b"said"


async def test_a_call_that_waits_is_cancelled_when_its_caller_hangs_up(
    served: Serving, client: httpx.AsyncClient
) -> None:
    asking = asyncio.create_task(client.post("/waiting", content=b"said"))
    await served.waiting.began.wait()
    asking.cancel()
    await wait_until_async(lambda: served.waiting.ended == ["CancelledError"], what="the end of the call")


async def test_a_caller_that_hangs_up_within_its_request_is_forgotten(served: Serving) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /echo HTTP/1.1\r\nhost: here\r\ncontent-length: 100000\r\n\r\n" + b"x" * 70_000)
    await writer.drain()
    writer.close()
    await wait_until_async(lambda: served.echo.ended == ["HungUp"], what="the end of the call")
