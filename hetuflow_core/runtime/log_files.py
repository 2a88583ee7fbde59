"""Rotated log files of a program, for hosts that do not store standard error.

FOLDER/PROGRAM.log      the current file
FOLDER/PROGRAM.log.1    the previous file, and so on; the oldest file is deleted
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

_FILE_MODE = 0o640


class RotatedLog(io.TextIOBase):
    """A stream that starts a new file before a line would make the current file too large."""

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
        """Rotate the files; if that fails, the current file keeps growing, because losing lines is worse."""
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
        return os.open(self._path, flags, _FILE_MODE)


def log_stream(settings: LogSettings, program: str) -> TextIO | None:
    """Return the stream for this program's log; None means standard error."""
    if settings.folder is None:
        return None
    return _stream(settings.folder / f"{program}.log", settings.file_size, settings.files)


@cache
def _stream(path: Path, most_bytes: int, most_files: int) -> TextIO:
    """Return one stream per file, even if logging is configured repeatedly."""
    try:
        return cast("TextIO", RotatedLog(path, most_bytes=most_bytes, most_files=most_files))
    except OSError as error:
        raise DataDirectoryUnusable(
            f"The log cannot be written to {path} ({error.strerror}): "
            "set log.folder to a folder that this user may write to."
        ) from error


def _locked(path: Path) -> int:
    """Lock the log, because two processes would rotate each other's lines away."""
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise DataDirectoryUnusable(
            f"{path} is the log of another process: set another log.folder for this one."
        ) from None
    return lock
