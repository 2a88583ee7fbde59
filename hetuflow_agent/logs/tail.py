"""One claim's log on disk: how far each stream has been shipped, and what comes next."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import zstandard

from hetuflow_agent.folders.spare_folders import FolderContents
from hetuflow_agent.folders.workdir import STDERR, STDOUT, STREAMS, ClaimDirectory
from hetuflow_agent.logs.holes import STEP, punch, roll_on
from hetuflow_agent.logs.masking import REACH, Masking
from hetuflow_core.messages import LogChunk, LogOutcome, LogResult

CHUNK_BYTES: Final = 256 * 1024
_LEVEL: Final = 3


@dataclass(slots=True)
class StreamTail:
    """`end` is known once nothing more will be written that counts; `refused` ends it early."""

    name: str
    path: str
    masking: Masking = field(default_factory=Masking)
    offset: int = 0
    end: int | None = None
    refused: bool = False
    # Before this the file is a hole; it grows by steps.
    hole: int = 0
    step: int = STEP
    # Whether it goes on for ever, and room matters more than the last byte of what is cut off.
    rolling: bool = False

    @property
    def drained(self) -> bool:
        return self.refused or (self.end is not None and self.offset >= self.end)

    def size(self) -> int:
        """Bytes that may be shipped so far."""
        if self.end is not None:
            return self.end
        try:
            return os.stat(self.path).st_size  # noqa: PTH116  of every task, more than once
        except FileNotFoundError:
            return self.offset

    def close(self, size: int | None = None) -> None:
        """`size`: of the whole file, where somebody has just looked."""
        if self.end is None:
            self.end = self.size() if size is None else size

    def read(self, most: int, ahead: int = 0) -> bytes:
        """The next bytes, or those `ahead` of them, without secrets; nothing when there are none (yet)."""
        if self.refused:
            self._discard()
            return b""
        size, offset = self.size(), self.offset + ahead
        if size <= offset or most <= 0:
            return b""
        reach = REACH if self.masking else 0
        before = min(reach, offset)
        window = self._window(offset - before, min(size, offset + most + reach))
        if not self.masking:
            return window
        stop = min(len(window), before + most)
        if self.end is None and offset - before + len(window) >= size:
            # It still grows, and a secret may be half written.
            stop = min(stop, max(before, self.masking.settled(window)))
        return self.masking.masked(window, before, stop)

    def moved(self) -> None:
        """After `offset` has changed: what was shipped takes no more room on the disk."""
        if self.end is None and self.offset - REACH - self.hole >= self.step:
            self._give_back(self.offset - REACH)

    def _discard(self) -> None:
        """Nobody takes it any more, but it may go on for long."""
        size = self.size()
        if self.end is None and size - self.hole >= self.step:
            self._give_back(size)

    def _give_back(self, stop: int) -> None:
        if punch(self.path, self.hole, stop) or not self.rolling or roll_on(self.path, stop):
            self.hole = stop

    def _window(self, start: int, stop: int) -> bytes:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            # Its folder was removed by hand: there is nothing left to ship.
            self.refused = True
            return b""
        try:
            data = os.pread(descriptor, stop - start, start)
        finally:
            os.close(descriptor)
        if start + len(data) <= self.offset and self.end is not None:
            self.end = self.offset  # it was cut shorter after its end
        return data


@dataclass(slots=True)
class ClaimLog:
    """The streams of one claim.

    `taken`: the server has answered the result, a failure if `failed`. `contents`: what was left in the
    folder when nothing lived any more of what the work had started.
    """

    instance_id: UUID
    token: UUID
    directory: ClaimDirectory
    masking: Masking = field(default_factory=Masking)
    taken: bool = False
    failed: bool = False
    contents: FolderContents | None = None
    # Nothing may be shipped before it is known what to mask.
    veiled: bool = False
    # Its work has not begun: there is nothing to look for.
    resting: bool = False
    # Of a daemon: what was shipped is given back to the disk by steps of this many bytes.
    rolling_step: int | None = None
    # It has ended and nothing was ever written.
    wordless: bool = field(default=False, init=False)
    _streams: dict[str, StreamTail] | None = field(default=None, init=False)

    @property
    def streams(self) -> dict[str, StreamTail]:
        """By name. Not made before somebody asks: of most short work nobody does."""
        if self._streams is None:
            end = 0 if self.wordless else None
            self._streams = {
                name: StreamTail(name, self.directory.at(name), self.masking, end=end) for name in STREAMS
            }
            if self.rolling_step is not None:
                for stream in self._streams.values():
                    stream.rolling, stream.step = True, self.rolling_step
        return self._streams

    @property
    def drained(self) -> bool:
        if self._streams is None:
            return self.wordless
        return all(stream.drained for stream in self._streams.values())

    def close(self) -> None:
        self.resting = False
        sizes = {} if self.contents is None else self.contents.sizes
        # Nobody asks for its streams then, unless somebody has.
        self.wordless = sizes.get(STDOUT) == 0 and sizes.get(STDERR) == 0
        if self._streams is not None or not self.wordless:
            for name, stream in self.streams.items():
                stream.close(sizes.get(name))

    def unveil(self, masking: Masking) -> None:
        self.masking = masking
        for stream in self.streams.values():
            stream.masking = masking
        self.veiled = False

    def chunks(self, most: int) -> list[LogChunk]:
        """What each stream has next, `most` bytes together: half for the first, so that both come along."""
        found: list[LogChunk] = []
        if self.veiled:
            return found
        for stream, share in zip(self.streams.values(), (most - most // 2, most), strict=True):
            ahead, room = 0, min(share, most)
            while data := stream.read(min(room, CHUNK_BYTES), ahead):
                packed = zstandard.ZstdCompressor(level=_LEVEL).compress(data)
                at = stream.offset + ahead
                found.append(LogChunk(self.instance_id, self.token, stream.name, at, len(data), packed))
                ahead += len(data)
                room -= len(data)
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
        stream.moved()
