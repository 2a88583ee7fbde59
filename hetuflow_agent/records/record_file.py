"""A file of lines that is only ever added to, and begun anew once most of it is of no interest any more.

Adding a line is one write into the memory of the system, so whoever adds it does that at once; only the flush
to the disk takes a thread. Lines that have to be on the disk are written with what else is to be flushed. A
line that a crash cut off is the last one and is passed over; the first line says what the file is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

_HEADING: Final = b'{"hetuflow":"records","format":1}'
_COMPACT_AT: Final = 8 * 1024 * 1024
# With nothing of interest in it, begun anew from this size on: less is not worth a new file and its flush.
_IDLE_COMPACT_AT: Final = 256 * 1024


class NoRecords(ValueError):
    """The file is there and is not ours."""


class RecordFile:
    def __init__(self, path: Path, live: Callable[[], Iterable[bytes]]) -> None:
        """`live`: the lines that say everything which is still of interest."""
        self._path = path
        self._live = live
        self._descriptor = -1
        self._size = 0
        self._live_size = 0
        self._thread: ThreadPoolExecutor | None = None
        # What goes with the next flush and who waits for it, and the one under way.
        self._unflushed: list[tuple[bytes, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None
        # How many have not heard yet that theirs is flushed: what is live does not have them before.
        self._putting = 0

    def read(self) -> list[bytes]:
        """All whole lines; raises NoRecords or OSError."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        heading, *lines = data.split(b"\n")
        if data and heading != _HEADING:
            raise NoRecords("it is no file of records")
        return lines[:-1]

    def open(self) -> None:
        """Begin anew with what is of interest; raises OSError."""
        self._begin_anew()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="records")

    async def close(self) -> None:
        while self._flushing is not None and not self._flushing.done():
            await asyncio.wait({self._flushing})
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=True)
            os.close(self._descriptor)

    def add(self, *lines: bytes) -> None:
        """They survive this process when this returns; raises OSError, and then nothing was added."""
        self._check_open()
        data = b"\n".join((*lines, b""))
        try:
            _write_all(self._descriptor, data)
        except OSError:
            # Half a line would spoil the next one.
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    async def put(self, line: bytes) -> None:
        """Add it with what others put meanwhile; it survives the machine then. Raises OSError.

        Whoever awaits this has it among what is live before it awaits anything else.
        """
        self._check_open()
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unflushed.append((line, flushed))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush(), name="flush records")
        self._putting += 1
        try:
            await flushed
        finally:
            self._putting -= 1

    def tidy(self, *, idle: bool) -> None:
        """Begin anew if it is worth it; `idle` when nothing is of interest."""
        most = _IDLE_COMPACT_AT if idle else max(_COMPACT_AT, 4 * self._live_size)
        if self._size > most and not self._putting and (self._flushing is None or self._flushing.done()):
            with suppress(OSError):  # the old one goes on
                self._begin_anew()

    def _check_open(self) -> None:
        if self._thread is None:
            raise RuntimeError("The records are not open.")

    async def _flush(self) -> None:
        while self._unflushed:
            waiting, self._unflushed = self._unflushed, []
            failure: OSError | None = None
            try:
                self.add(*(line for line, _ in waiting))
                await asyncio.get_running_loop().run_in_executor(self._thread, os.fdatasync, self._descriptor)
            except OSError as error:
                failure = error
            for _, each in waiting:
                if each.done():  # whoever waited was cancelled
                    continue
                if failure is None:
                    each.set_result(None)
                else:
                    each.set_exception(failure)

    def _begin_anew(self) -> None:
        draft = self._path.with_name(self._path.name + ".new")
        data = b"".join(line + b"\n" for line in (_HEADING, *self._live()))
        # Appending whatever else happens: after a write that failed the end is where the file was cut to.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(draft, flags, 0o600)
        try:
            _write_all(descriptor, data)
            os.fdatasync(descriptor)
            draft.replace(self._path)
            _flush_folder(self._path.parent)
        except OSError:
            os.close(descriptor)
            raise
        former, self._descriptor = self._descriptor, descriptor
        if former >= 0:
            os.close(former)
        self._size = self._live_size = len(data)


def _flush_folder(folder: Path) -> None:
    """So that the new file has its name also after a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
