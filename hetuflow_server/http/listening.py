"""The listening server: the port is held from the start, and answered once everything behind it works."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import structlog
import uvicorn

from hetuflow_core.errors import HostBlocked, PortTaken
from hetuflow_core.runtime.file_descriptors import descriptor_ceiling, raise_descriptor_limit
from hetuflow_core.runtime.lifecycle import StopSwitch
from hetuflow_server.http.asgi_calls import AsgiCalls
from hetuflow_server.http.direct_calls import DirectCall
from hetuflow_server.http.tls import ServerTls

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.http")

# Agents that come back together after a restart; the kernel cuts it to net.core.somaxconn.
_BACKLOG = 8_192
# Each agent that waits has a connection open, and so has each log that is followed.
_ENOUGH_DESCRIPTORS = 12_000
_SPARE_DESCRIPTORS = 200
# How old the date in the head of an answer may be.
_DATE_SECONDS = 1.0
_START_CHECK_SECONDS = 0.005


def descriptor_note() -> str | None:
    """Say what is to be done when this process could have too few connections, or None."""
    ceiling = descriptor_ceiling()
    if ceiling >= _ENOUGH_DESCRIPTORS:
        return None
    agents = max(0, ceiling - _SPARE_DESCRIPTORS)
    return (
        f"A server here may open {ceiling} files, so about {agents} agents can wait at it: "
        "raise the hard limit for more (LimitNOFILE= in systemd, `ulimit -Hn`)."
    )


class Listener:
    """Holds the port without answering on it, so that a taken one is known before anything else starts."""

    name = "listener"

    def __init__(self, host: str, port: int, *, encrypted: bool = False) -> None:
        self._host = host
        self._port = port
        self._scheme = "https" if encrypted else "http"
        self._socket: socket.socket | None = None

    @property
    def socket(self) -> socket.socket:
        if self._socket is None:
            raise RuntimeError("the listener has not been started")
        return self._socket

    @property
    def url(self) -> str:
        host, port = self.socket.getsockname()[:2]
        if host in {"0.0.0.0", "::"}:  # noqa: S104 - not bound here: a wildcard is no address to call
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
        return f"{self._scheme}://[{host}]:{port}" if ":" in host else f"{self._scheme}://{host}:{port}"

    async def start(self) -> None:
        limit = raise_descriptor_limit()
        if (note := descriptor_note()) is not None:
            log.warning(note, limit=limit)
        try:
            found = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except socket.gaierror as error:
            raise HostBlocked(
                f"The host {self._host} to listen on is not known ({error.strerror}): "
                "set [server] host to an address of this machine.",
            ) from error
        family, kind, protocol, _, address = found[0]
        self._socket = socket.socket(family, kind, protocol)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(address)
        except OSError as error:
            self._socket.close()
            raise _bind_error(error, self._host, self._port) from error

    async def stop(self) -> None:
        self.socket.close()


class HttpServer:
    """uvicorn inside our own lifecycle: signals and the order of stopping are the application's."""

    name = "http"

    def __init__(
        self,
        app: Any,
        calls: Mapping[str, DirectCall],
        listener: Listener,
        stop_switch: StopSwitch,
        *,
        stop_timeout: float,
        tls: ServerTls | None = None,
    ) -> None:
        """`calls` are served by their paths, past ASGI if possible; the rest is the application's."""
        self._app = app
        self._calls = calls
        self._listener = listener
        self._stop_switch = stop_switch
        self._stop_seconds = max(1, int(stop_timeout))
        self._tls = tls
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        server = self._server = _Server(self._config())
        serving = self._serving = asyncio.create_task(
            server.serve(sockets=[self._listener.socket]),
            name="http server",
        )
        while not server.started and not serving.done():
            await asyncio.wait({serving}, timeout=_START_CHECK_SECONDS)
        if serving.done():
            serving.result()
            raise HostBlocked("The HTTP server ended before it could listen: see the log.")
        serving.add_done_callback(self._note_end)

    async def stop(self) -> None:
        if self._server is not None and self._serving is not None:
            self._server.end()
            await self._serving

    def _config(self) -> uvicorn.Config:
        app, protocol = _served_by(self._app, self._calls)
        tls = self._tls
        return uvicorn.Config(
            app,
            http=protocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=True,
            backlog=_BACKLOG,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=self._stop_seconds,
            ssl_context_factory=None if tls is None else (lambda *_: tls.context),
        )

    def _note_end(self, serving: asyncio.Task[None]) -> None:
        ending = self._server is not None and self._server.should_exit
        if not ending and not serving.cancelled():
            self._stop_switch.fail(serving.exception() or HostBlocked("The HTTP server ended by itself."))


def _served_by(app: Any, calls: Mapping[str, DirectCall]) -> tuple[Any, Any]:
    """Return the application and the protocol for uvicorn; direct calls go past ASGI if it allows that."""
    missing: Sequence[str]
    try:
        # Not at the top: it extends a private class of uvicorn, which another version may not have.
        from hetuflow_server.http.connections import connections_with, missing_parts  # noqa: PLC0415
    except ImportError as error:
        missing = [str(error)]
    else:
        missing = missing_parts(app)
        if not missing:
            return app, connections_with(calls)
    log.warning("uvicorn lacks private parts, agents' calls are served over ASGI", missing=missing)
    return AsgiCalls(app, calls), "auto"


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Wait for `end`; uvicorn's own loop, used if `on_tick` is missing, checks ten times a second."""
        if not hasattr(self, "on_tick"):
            log.warning("uvicorn lacks private parts, its own main loop is used", missing=["on_tick"])
            await super().main_loop()
            return
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._ending.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bind_error(error: OSError, host: str, port: int) -> HostBlocked:
    if error.errno == errno.EADDRINUSE:
        return PortTaken(
            f"Port {port} on {host} is taken: stop what listens there, or choose another port "
            "(--port for `hetuflow dev`, HETUFLOW_SERVER__PORT for a server).",
        )
    if error.errno == errno.EACCES:
        return PortTaken(f"Port {port} may not be used by this user: choose one above 1023.")
    return HostBlocked(
        f"{host} port {port} cannot be listened on ({error.strerror}): "
        "set [server] host to an address of this machine.",
    )
