"""Progress of tasks: the last line of $HETUFLOW_PROGRESS, reported with the next heartbeat."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import UUID

from hetuflow_core.messages import Progress

LONGEST_MESSAGE: Final = 200
_TAIL_BYTES: Final = 4096
_LINE: Final = re.compile(r"\s*(?P<percent>\d{1,3}(?:\.\d{1,6})?)\s*%?(?:\s+(?P<message>.*))?")
_WHOLE: Final = 100.0


class ProgressReports:
    """Which progress has changed since the last report. Used by the heartbeat's thread only."""

    def __init__(self) -> None:
        self._reported: dict[UUID, Progress] = {}

    def changed(
        self, files: dict[tuple[UUID, UUID], Path], masked: Callable[[UUID, str], str]
    ) -> list[Progress]:
        """The changed progress in {(instance, token): file}; `masked` masks secrets in messages."""
        changed = []
        for (instance_id, token), file in files.items():
            progress_now = read_progress(file)
            if progress_now is not None:
                progress = Progress(instance_id, token, progress_now[0], masked(token, progress_now[1]))
                if self._reported.get(token) != progress:
                    changed.append(progress)
        return changed

    def note_reported(self, progress: list[Progress], held: set[UUID]) -> None:
        """The server has taken these; forget tokens of claims that have ended."""
        self._reported |= {each.token: each for each in progress}
        self._reported = {token: each for token, each in self._reported.items() if token in held}


def read_progress(file: Path) -> tuple[float, str] | None:
    """Percent and message of the last line; None if the file has no valid line."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES)) if size else b""
    except OSError:
        return None
    finally:
        os.close(descriptor)
    lines = [line for line in tail.decode(errors="replace").splitlines() if line.strip()]
    return parse_progress(lines[-1]) if lines else None


def parse_progress(line: str) -> tuple[float, str] | None:
    match = _LINE.fullmatch(line)
    if match is None or float(match["percent"]) > _WHOLE:
        return None
    message = (match["message"] or "").replace("\0", "").strip()
    return float(match["percent"]), message[:LONGEST_MESSAGE]
