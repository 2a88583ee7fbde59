"""One agent at the other end of the keeper's socket."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from hetuflow_agent.keeper import wire

# A larger buffer is asked of the kernel, and given back to it, for every message.
_READ: Final = 64 * 1024
_MOST_WAITING: Final = 256 * 1024 * 1024


class Connection:
    def __init__(
        self,
        client: socket.socket,
        on_message: Callable[[Connection, wire.Message], None],
        on_end: Callable[[Connection], None],
        selector: selectors.BaseSelector,
    ) -> None:
        self.session: str | None = None
        self.listens = False
        self._client = client
        self._on_message = on_message
        self._on_end = on_end
        self._selector = selector
        self._unpacker = wire.Unpacker()
        self._outgoing = bytearray()
        self._open = True
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ, self._on_event)

    @property
    def waiting(self) -> bool:
        """Whether something was not taken by the other side yet."""
        return bool(self._outgoing)

    def send(self, frame: bytes) -> None:
        if not self._open:
            return
        self._outgoing += frame
        if len(self._outgoing) > _MOST_WAITING:
            # An agent that hangs is told everything again when it comes back.
            self._on_end(self)
            return
        self._write()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._outgoing.clear()
            with suppress(KeyError, ValueError):
                self._selector.unregister(self._client)
            self._client.close()

    def _on_event(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write()
        if events & selectors.EVENT_READ and self._open:
            self._read()

    def _write(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._client.send(self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._on_end(self)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        if self._selector.get_key(self._client).events != wanted:
            self._selector.modify(self._client, wanted, self._on_event)

    def _read(self) -> None:
        try:
            data = self._client.recv(_READ)
            messages = self._unpacker.feed(data)
        except BlockingIOError:
            return
        except (OSError, wire.Garbled):
            self._on_end(self)
            return
        if not data:
            self._on_end(self)
            return
        for message in messages:
            if not self._open:
                return
            self._on_message(self, message)
