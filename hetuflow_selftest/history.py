"""Histories: what everybody saw, as JSON lines stamped with a clock that counts sleep and never steps."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

Record = dict[str, Any]

# The files of a run's folder, beside one per process of a payload.
CLIENTS: Final = "clients"
DATABASE: Final = "database"
NEMESIS: Final = "nemesis"
OBSERVER: Final = "observer"
PROXY: Final = "proxy"
SCENE: Final = "scene"
TRACES: Final = "traces"


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall_minus_boottime() -> float:
    """What turns a boottime into a time of day; the middle of three looks, so that a pause does not count."""
    return sorted(time.time() - boottime() for _ in range(3))[1]


class History:
    """One writer's file; a line is whole or not there."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = (folder / f"{name}.jsonl").open("a", encoding="utf-8", buffering=1)

    def write(self, kind: str, *, at: float | None = None, **facts: Any) -> None:
        record = {"at": round(boottime() if at is None else at, 6), "kind": kind, **facts}
        self._file.write(json.dumps(record, default=str) + "\n")

    def close(self) -> None:
        self._file.close()


def read_history(folder: Path, name: str) -> list[Record]:
    file = folder / f"{name}.jsonl"
    return list(_lines(file)) if file.exists() else []


class Listener:
    """Reads a history that is still being written, from where it stands now."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{name}.jsonl"
        self._read = self._path.stat().st_size if self._path.exists() else 0

    def more(self) -> list[Record]:
        """Return what has come since the last time."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return []
        self._read += len(whole) + 1
        return [json.loads(line) for line in whole.splitlines()]


def read_traces(folder: Path) -> list[Record]:
    """What the payloads wrote, each process into a file of its own."""
    return [record for file in sorted((folder / TRACES).iterdir()) for record in _lines(file)]


def _lines(file: Path) -> Iterator[Record]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            # Whoever was killed in the middle of a line has not said it.
            if line.endswith("\n"):
                yield json.loads(line)
