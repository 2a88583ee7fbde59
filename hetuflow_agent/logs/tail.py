"""One claim's log on disk: how much of each stream was shipped, and which chunks are next."""

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
    """One stream. `end` is set when the stream is complete; `refused` ends it early."""

    name: str
    path: str
    masking: Masking = field(default_factory=Masking)
    offset: int = 0
    end: int | None = None
    refused: bool = False
    # The file is a hole before this offset, which grows by `step`.
    hole: int = 0
    step: int = STEP
    # Whether the stream may never end: freeing disk space is worth the loss of a few bytes.
    rolling: bool = False

    @property
    def drained(self) -> bool:
        return self.refused or (self.end is not None and self.offset >= self.end)

    def size(self) -> int:
        """Bytes that may be shipped now."""
        if self.end is not None:
            return self.end
        try:
            return os.stat(self.path).st_size  # noqa: PTH116  for every task: no Path object
        except FileNotFoundError:
            return self.offset

    def close(self, size: int | None = None) -> None:
        """Complete the stream. `size`: of the whole file, if the caller knows it."""
        if self.end is None:
            self.end = self.size() if size is None else size

    def read(self, most: int, ahead: int = 0) -> bytes:
        """The next bytes, or those `ahead` of them, with secrets masked; empty at the end."""
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
            # The stream still grows, and a secret may be half written.
            stop = min(stop, max(before, self.masking.settled(window)))
        return self.masking.masked(window, before, stop)

    def moved(self) -> None:
        """The offset has changed: free the disk space of the shipped part."""
        if self.end is None and self.offset - REACH - self.hole >= self.step:
            self._give_back(self.offset - REACH)

    def _discard(self) -> None:
        """The server refuses the stream, which may continue for long: free its disk space."""
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
            # The folder was removed by hand, and the log with it.
            self.refused = True
            return b""
        try:
            data = os.pread(descriptor, stop - start, start)
        finally:
            os.close(descriptor)
        if start + len(data) <= self.offset and self.end is not None:
            self.end = self.offset  # the file was truncated after the end of the work
        return data


@dataclass(slots=True)
class ClaimLog:
    """The streams of one claim.

    `taken`: the server has taken the result. `failed`: the work failed. `contents`: what the work folder
    contains, if no process of the work is left.
    """

    instance_id: UUID
    token: UUID
    directory: ClaimDirectory
    masking: Masking = field(default_factory=Masking)
    taken: bool = False
    failed: bool = False
    contents: FolderContents | None = None
    # Nothing may be shipped before the secrets to mask are known.
    needs_secrets: bool = False
    # The work has not begun: its files are empty.
    not_begun: bool = False
    # For a daemon: the disk space of the shipped part is freed in steps of this many bytes.
    rolling_step: int | None = None
    # Whether the log is complete and empty.
    empty: bool = field(default=False, init=False)
    _streams: dict[str, StreamTail] | None = field(default=None, init=False)

    @property
    def streams(self) -> dict[str, StreamTail]:
        """By name. Made on use: most short work needs none."""
        if self._streams is None:
            end = 0 if self.empty else None
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
            return self.empty
        return all(stream.drained for stream in self._streams.values())

    def close(self) -> None:
        self.not_begun = False
        sizes = {} if self.contents is None else self.contents.sizes
        # Then no stream objects are needed, unless they exist already.
        self.empty = sizes.get(STDOUT) == 0 and sizes.get(STDERR) == 0
        if self._streams is not None or not self.empty:
            for name, stream in self.streams.items():
                stream.close(sizes.get(name))

    def set_masking(self, masking: Masking) -> None:
        self.masking = masking
        for stream in self.streams.values():
            stream.masking = masking
        self.needs_secrets = False

    def chunks(self, most: int) -> list[LogChunk]:
        """The next chunks, at most `most` bytes: half of them for the first stream, so that both progress."""
        found: list[LogChunk] = []
        if self.needs_secrets:
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
        """Continue at the offset that the server reports."""
        stream = self.streams[chunk.stream]
        match result.outcome:
            case LogOutcome.APPENDED:
                stream.offset = max(stream.offset, chunk.offset + chunk.byte_length)
            case LogOutcome.OFFSET:
                stream.offset = result.length
            case LogOutcome.REFUSED:
                stream.refused = True
        stream.moved()
