"""The smallest load balancer: passes bytes on to whichever server it was told to turn to."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

_CHUNK = 65_536


class Balancer:
    def __init__(self, target: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._target = _address(target)
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def turn_to(self, target: str) -> None:
        """Pass new connections on to another server; those to the old one end."""
        with self._lock:
            self._target = _address(target)
            ended, self._open = self._open, set()
        for one in ended:
            _end(one)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._listener)
        self._listener.close()
        with self._lock:
            ended, self._open = self._open, set()
        for one in ended:
            _end(one)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        with self._lock:
            target = self._target
        try:
            far = socket.create_connection(target, timeout=10)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        with self._lock:
            self._open |= {near, far}
        back = threading.Thread(target=self._pass_on, args=(far, near), daemon=True)
        back.start()
        self._pass_on(near, far)
        back.join()
        with self._lock:
            self._open -= {near, far}
        near.close()
        far.close()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                sink.sendall(data)
        _end(source)
        _end(sink)


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def _end(one: socket.socket) -> None:
    """Wake whoever waits in it; closing alone would not."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
