"""What PostgreSQL says, in a file that does not grow for ever."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import IO

from hetuflow_server.embedded.directory import give_to_owner

KEPT_BYTES = 8 * 1024 * 1024
_TAIL_BYTES = 64 * 1024


class ServerLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._mark = 0

    def open(self) -> IO[bytes]:
        """For appending; what is written from now on is what the reading methods look at."""
        self.trim()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        give_to_owner(descriptor, self.path.parent)
        self._mark = os.fstat(descriptor).st_size
        return os.fdopen(descriptor, "ab")

    def trim(self) -> None:
        """Keep one older file. Safe while the server writes, since it appends."""
        if self.path.exists() and self.path.stat().st_size > KEPT_BYTES:
            older = self.path.with_name(f"{self.path.name}.1")
            shutil.copyfile(self.path, older)
            older.chmod(0o600)
            os.truncate(self.path, 0)

    def since_open(self) -> str:
        with self.path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._mark, end - _TAIL_BYTES))
            return file.read().decode(errors="replace")

    def last_words(self) -> str:
        """The line that says most about the end: the last fatal one, else the last of all."""
        lines = [line.strip() for line in self.since_open().splitlines() if line.strip()]
        fatal = [line for line in lines if "FATAL:" in line or "PANIC:" in line]
        chosen = (fatal or lines or ["it said nothing"])[-1]
        _, severity, text = chosen.partition("FATAL:") if "FATAL:" in chosen else chosen.partition("PANIC:")
        return text.strip() if severity else chosen
