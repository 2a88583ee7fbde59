"""A small real HTTP server that answers as a test tells it, and remembers what it was asked."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Handler = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class WebServer:
    port: int
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def reply(
    status: int = 200, body: bytes = b"", *, content_type: str = "text/plain", **headers: str
) -> Handler:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Type", content_type)
        request.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    return answer


@contextmanager
def serving_web(routes: dict[str, Handler], *, tls: ssl.SSLContext | None = None) -> Iterator[WebServer]:
    class Answers(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.asked.append(Asked(self.command, self.path, headers, self.rfile.read(length)))
            routes.get(self.path, reply(404))(self)

        do_GET = do_POST = do_PUT = handle_any  # noqa: N815 (the names the library calls)

        def log_message(self, *_: object) -> None:
            pass

        def handle(self) -> None:
            with suppress(ConnectionError, ssl.SSLError):  # hung up on, which some tests are about
                super().handle()

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    listening.daemon_threads = True
    listening.handle_error = lambda *_: None  # type: ignore[method-assign]
    if tls is not None:
        listening.socket = tls.wrap_socket(listening.socket, server_side=True)
    server = WebServer(listening.server_address[1])
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join(5)
        listening.server_close()
