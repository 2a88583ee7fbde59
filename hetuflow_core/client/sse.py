"""Server-sent events out of bytes that arrive in pieces of any size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

# On bytes: str.splitlines would also split at U+2028 and its like.
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    kind: str
    data: str
    # The position to resume from after this event.
    last_id: str | None


class EventParser:
    """One connection's events; the next connection gets a new parser."""

    def __init__(self, last_id: str | None = None) -> None:
        self.last_id = last_id
        self._rest = b""
        self._at_start = True
        self._after_return = False
        self._kind = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """The events that `chunk` completes. What is incomplete when a connection ends never happened."""
        for line in self._lines(chunk):
            if not line:
                yield from self._dispatch()
            elif not line.startswith(b":"):
                name, _, value = line.decode(errors="replace").partition(":")
                self._take(name, value.removeprefix(" "))

    def _lines(self, chunk: bytes) -> list[bytes]:
        if self._after_return and chunk:
            # The line ended with the last chunk's CR already; its LF comes only now.
            chunk = chunk.removeprefix(b"\n")
            self._after_return = False
        buffer = self._rest + chunk
        if self._at_start:
            if len(buffer) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(buffer):
                self._rest = buffer
                return []
            buffer = buffer.removeprefix(_BYTE_ORDER_MARK)
            self._at_start = False
        *lines, self._rest = _LINE_END.split(buffer)
        if buffer.endswith(b"\r"):
            self._after_return = True
        return lines

    def _take(self, name: str, value: str) -> None:
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id" and "\0" not in value:
            self.last_id = value

    def _dispatch(self) -> Iterator[ServerSentEvent]:
        kind, data = self._kind or "message", self._data
        self._kind, self._data = "", []
        if data:
            yield ServerSentEvent(kind, "\n".join(data), self.last_id)
