"""Connections: uvicorn's, with calls that go past ASGI, and answers that are one write each."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Final

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from hetuflow_server.http.direct_calls import DirectCall, Exchange
from hetuflow_server.http.write_coalescing import JoiningTransport

# Undocumented attributes and methods of uvicorn's protocol that this module uses.
_PRIVATE_PARTS: Final = (
    *("app", "cycle", "expect_100_continue", "flow", "headers", "loop", "parser", "pipeline"),
    *("server_state", "tasks", "transport", "url"),
    *("_start_asgi_task", "connection_lost", "connection_made", "on_body", "on_headers_complete"),
    *("on_message_complete", "on_response_complete"),
)


def missing_parts(app: Any) -> Sequence[str]:
    """Return the private parts that the installed uvicorn lacks; needs a running event loop."""
    protocol: Any = HttpToolsProtocol(Config(app, lifespan="off", log_config=None), ServerState(), {})
    protocol.on_message_begin()  # the protocol sets some attributes with its first request only
    return [name for name in _PRIVATE_PARTS if not hasattr(protocol, name)]


def connections_with(calls: Mapping[str, DirectCall]) -> type[HttpConnection]:
    """Return the kind of connection that serves these calls, by their paths, and leaves the rest to ASGI."""
    return type(
        "Connection", (HttpConnection,), {"calls": {path.encode(): call for path, call in calls.items()}}
    )


class HttpConnection(HttpToolsProtocol):
    calls: ClassVar[Mapping[bytes, DirectCall]] = {}
    transport: JoiningTransport  # type: ignore[assignment]  # it does what uvicorn asks of a transport
    cycle: RequestResponseCycle | Exchange | None  # type: ignore[assignment]  # and so does an exchange of a cycle
    # Whose turn it is, or was last: what came behind it on the same connection waits for its answer.
    _served: Exchange | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(JoiningTransport(transport))  # type: ignore[arg-type]  # see above

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._served is not None:
            self._served.hang_up()
        # They know each other: kept, all of them would wait for a collection of garbage.
        self._served = None
        if isinstance(self.cycle, Exchange):
            self.cycle = None

    def on_headers_complete(self) -> None:
        path = self.url.partition(b"?")[0]
        call = self.calls.get(path)
        if call is None:
            super().on_headers_complete()
            return
        before, parser = self.cycle, self.parser
        self.cycle = Exchange(
            self,
            call,
            parser.get_method().decode("ascii"),
            path.decode("ascii"),
            dict(self.headers),
            keep_alive=parser.get_http_version() != "1.0" and parser.should_keep_alive(),
        )
        if self.expect_100_continue:
            self.transport.write_whole(b"HTTP/1.1 100 Continue\r\n\r\n")
        if before is None or before.response_complete:
            self._serve(self.cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))  # type: ignore[arg-type]  # see above

    def on_body(self, body: bytes) -> None:
        if isinstance(self.cycle, Exchange):
            self.cycle.take_part(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if isinstance(self.cycle, Exchange):
            self.cycle.take_end()
        else:
            super().on_message_complete()

    def pause_reading(self) -> None:
        self.flow.pause_reading()

    def resume_reading(self) -> None:
        self.flow.resume_reading()

    def default_headers(self) -> bytes:
        return b"".join([b"%b: %b\r\n" % one for one in self.server_state.default_headers])

    def start(self, serving: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Serve in a task that a stop of the server waits for."""
        task = self.loop.create_task(serving)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def note_answered(self) -> None:
        self.on_response_complete()

    def _serve(self, exchange: Exchange) -> None:
        self._served = exchange
        exchange.take_turn()

    def _start_asgi_task(self, cycle: RequestResponseCycle | Exchange, app: Any) -> None:
        if isinstance(cycle, Exchange):
            self._serve(cycle)
        else:
            super()._start_asgi_task(cycle, app)
