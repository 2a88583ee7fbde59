"""Answers that travel whole: the head and the body of an answer are one write, not two.

uvicorn writes them one after the other, each a packet of its own that wakes the caller up. For the small
answers agents get that is a tenth of what a request costs.
"""

from __future__ import annotations

import asyncio
from typing import Any

# A head that waits for its body holds back no more than this.
_MOST_HELD = 16 * 1024


class JoiningTransport:
    """Holds a write until the next one, or until this step of the event loop is over."""

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._held: bytes = b""

    def write(self, data: bytes) -> None:
        if self._held:
            self._held += data
            self._flush()
        elif len(data) > _MOST_HELD:
            # Whoever writes much has to notice when nobody takes it.
            self._transport.write(data)
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def write_whole(self, data: bytes) -> None:
        """Write what nothing belongs to that comes behind it."""
        self._flush()
        self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._flush()
        self._transport.set_protocol(protocol)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        held, self._held = self._held, b""
        if held:
            self._transport.write(held)
