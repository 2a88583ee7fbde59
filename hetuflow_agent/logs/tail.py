"""One claim's log on disk: how far each stream has been shipped, and what comes next."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

import zstandard

from hetuflow_agent.workdir import STREAMS, ClaimDirectory
from hetuflow_core.messages import LogChunk, LogOutcome, LogResult

CHUNK_BYTES: Final = 256 * 1024
_LEVEL: Final = 3


@dataclass(slots=True)
class StreamTail:
    """`end` is known once nothing more will be written that counts; `refused` ends it early."""

    name: str
    path: Path
    offset: int = 0
    end: int | None = None
    refused: bool = False

    @property
    def drained(self) -> bool:
        return self.refused or (self.end is not None and self.offset >= self.end)

    def size(self) -> int:
        """Bytes that may be shipped so far."""
        if self.end is not None:
            return self.end
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return self.offset

    def close(self) -> None:
        if self.end is None:
            self.end = self.size()

    def read(self, most: int) -> bytes:
        """The next bytes; nothing when there are none (yet)."""
        if self.refused:
            return b""
        wanted = min(most, self.size() - self.offset)
        if wanted <= 0:
            return b""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            # Its folder was removed by hand: there is nothing left to ship.
            self.refused = True
            return b""
        try:
            data = os.pread(descriptor, wanted, self.offset)
        finally:
            os.close(descriptor)
        if not data and self.end is not None:
            self.end = self.offset  # it was cut shorter after its end
        return data


@dataclass(slots=True)
class ClaimLog:
    """The streams of one claim. `taken` says that the server has answered the claim's result."""

    instance_id: UUID
    token: UUID
    directory: ClaimDirectory
    streams: dict[str, StreamTail] = field(init=False)
    taken: bool = False

    def __post_init__(self) -> None:
        self.streams = {name: StreamTail(name, self.directory.stream(name)) for name in STREAMS}

    @property
    def drained(self) -> bool:
        return all(stream.drained for stream in self.streams.values())

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()

    def chunks(self, most: int) -> list[LogChunk]:
        """What each stream has next: at most one chunk per stream, `most` bytes together."""
        found = []
        for stream in self.streams.values():
            data = stream.read(min(most, CHUNK_BYTES))
            if data:
                packed = zstandard.ZstdCompressor(level=_LEVEL).compress(data)
                found.append(
                    LogChunk(self.instance_id, self.token, stream.name, stream.offset, len(data), packed)
                )
                most -= len(data)
        return found

    def apply(self, chunk: LogChunk, result: LogResult) -> None:
        """Move to where the server is; it is the truth about what it has."""
        stream = self.streams[chunk.stream]
        match result.outcome:
            case LogOutcome.APPENDED:
                stream.offset = max(stream.offset, chunk.offset + chunk.byte_length)
            case LogOutcome.OFFSET:
                stream.offset = result.length
            case LogOutcome.REFUSED:
                stream.refused = True
