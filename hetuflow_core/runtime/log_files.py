"""A program's own log in files that are rotated, where standard error goes nowhere useful.

FOLDER/PROGRAM.log      what is written now
FOLDER/PROGRAM.log.1    what was written before that, and so on; the oldest go
"""

from __future__ import annotations

import fcntl
import io
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TextIO, cast

from hetuflow_core.errors import DataDirectoryUnusable
from hetuflow_core.runtime.config.log_section import LogSettings

_FOR_US_AND_OUR_GROUP = 0o640


class RotatedLog(io.TextIOBase):
    """A stream that begins a new file before a line would make the current one too large."""

    def __init__(self, path: Path, *, most_bytes: int, most_files: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._most_files = most_files
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(path)
        self._descriptor = self._open()
        self._size = os.fstat(self._descriptor).st_size

    def write(self, text: str, /) -> int:
        data = text.encode(errors="replace")
        if self._size and self._size + len(data) > self._most_bytes:
            self._rotate()
        self._size += os.write(self._descriptor, data)
        return len(text)

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
            os.close(self._lock)
        super().close()

    def _rotate(self) -> None:
        """A file that cannot be moved goes on growing: losing lines would be worse."""
        with suppress(OSError):
            for number in range(self._most_files - 1, 0, -1):
                with suppress(FileNotFoundError):
                    self._former(number).replace(self._former(number + 1))
            self._path.replace(self._former(1))
            fresh = self._open()
            os.close(self._descriptor)
            self._descriptor, self._size = fresh, 0

    def _former(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._path, flags, _FOR_US_AND_OUR_GROUP)


def log_stream(settings: LogSettings, program: str) -> TextIO | None:
    """Where this program's log goes; None is standard error."""
    if settings.folder is None:
        return None
    return _stream(settings.folder / f"{program}.log", settings.file_size, settings.files)


@cache
def _stream(path: Path, most_bytes: int, most_files: int) -> TextIO:
    """One for each file, however often logging is set up."""
    try:
        return cast("TextIO", RotatedLog(path, most_bytes=most_bytes, most_files=most_files))
    except OSError as error:
        raise DataDirectoryUnusable(
            f"The log cannot be written to {path} ({error.strerror}): "
            "set log.folder to a folder that this user may write to."
        ) from error


def _locked(path: Path) -> int:
    """Two programs would rotate each other's lines away."""
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise DataDirectoryUnusable(
            f"{path} is the log of another process: set another log.folder for this one."
        ) from None
    return lock
