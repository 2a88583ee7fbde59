"""A transport that keeps what is written to it."""

from __future__ import annotations

from typing import Any


class Written:
    """Where a transport would send to."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.reading = True

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.writes.append(b"closed")

    def set_protocol(self, protocol: Any) -> None:
        self.writes.append(b"protocol")

    def is_closing(self) -> bool:
        return b"closed" in self.writes

    def get_extra_info(self, name: str) -> None:
        """A transport that knows nothing of its peer."""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
