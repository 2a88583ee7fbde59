"""How far tasks say they have come: the last line of $HETUFLOW_PROGRESS, told with the next heartbeat."""

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


class ProgressBook:
    """What was told last. Used by the heartbeat's thread alone."""

    def __init__(self) -> None:
        self._told: dict[UUID, Progress] = {}

    def changed(
        self, files: dict[tuple[UUID, UUID], Path], cleaned: Callable[[UUID, str], str]
    ) -> list[Progress]:
        """What is new, of {(instance, token): file}; `cleaned` takes secrets out of messages."""
        found = []
        for (instance_id, token), file in files.items():
            said = read_progress(file)
            if said is not None:
                progress = Progress(instance_id, token, said[0], cleaned(token, said[1]))
                if self._told.get(token) != progress:
                    found.append(progress)
        return found

    def told(self, progress: list[Progress], held: set[UUID]) -> None:
        """The server has these; tokens that are not held any more are forgotten."""
        self._told |= {one.token: one for one in progress}
        self._told = {token: one for token, one in self._told.items() if token in held}


def read_progress(file: Path) -> tuple[float, str] | None:
    """Percent and message of the last whole line; None when there is none, or it cannot be one."""
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
