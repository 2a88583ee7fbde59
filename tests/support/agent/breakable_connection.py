"""A wire between an agent and its server that can be cut, mended, or made deaf in one direction."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class Wire:
    """Forwards TCP from a port of its own to the server's."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = (target.hostname or "", target.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._towards_agent: set[socket.socket] = set()
        self._whole = True
        self._deaf = False
        self._selector = selectors.DefaultSelector()
        self._lock = threading.RLock()
        self._waker, woken = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(woken, selectors.EVENT_READ)
        self._woken = woken
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._waker.send(b"x")
        self._thread.join(10)
        self.cut()
        for each in (self._listener, self._waker, self._woken):
            each.close()
        self._selector.close()

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        with self._lock:
            self._whole = False
            for each in list(self._pairs):
                self._drop(each)

    def swallow_answers(self) -> None:
        """Let requests through and lose what comes back; then the connection breaks."""
        with self._lock:
            self._deaf = True

    def mend(self) -> None:
        with self._lock:
            for each in list(self._pairs):
                self._drop(each)
            self._whole, self._deaf = True, False

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select():
                with self._lock, suppress(OSError):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is not self._woken and isinstance(key.fileobj, socket.socket):
                        self._forward(key.fileobj)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if not self._whole:
            client.close()
            return
        try:
            server = socket.create_connection(self._target, timeout=10)
        except OSError:
            client.close()
            return
        self._pairs[client], self._pairs[server] = server, client
        self._towards_agent.add(server)
        for each in (client, server):
            self._selector.register(each, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        target = self._pairs.get(source)
        if target is None:
            return
        try:
            data = source.recv(65536)
            if data and not (self._deaf and source in self._towards_agent):
                target.sendall(data)
                return
        except OSError:
            pass
        self._drop(source)

    def _drop(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        for each in (one, other):
            if each is not None:
                self._pairs.pop(each, None)
                self._towards_agent.discard(each)
                with suppress(KeyError, ValueError):
                    self._selector.unregister(each)
                each.close()
