"""The keeper's records on disk: intents to start a task, running processes, and ends.

Each record is one line of JSON that is appended. The keeper flushes an intent to the disk before it starts
the process; tasks that arrive together share one flush. So a task without an intent never ran. Other records
only have to survive the keeper, not the host. A line that a crash has cut off is the last one and is ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from hetuflow_agent.keeper import wire
from hetuflow_agent.keeper.task import Phase, Task

_COMPACT_AT: Final = 1024 * 1024
# A journal without tasks is rewritten from this size on: less is not worth a new file and its flush.
_IDLE_COMPACT_AT: Final = 128 * 1024


class Journal:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._size = 0
        self._live_size = 0

    def load(self) -> dict[str, Task]:
        """Tasks whose end no agent has confirmed; a task without an end has its last known phase."""
        tasks: dict[str, Task] = {}
        for line in self._read_lines():
            _apply(line, tasks)
        return tasks

    def open(self, tasks: Iterable[Task]) -> None:
        """Replace the file by one that contains only these tasks."""
        self.close()
        draft = self._path.with_name(self._path.name + ".new")
        lines = _lines(task.encoded() for task in tasks)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(descriptor, lines)
            os.fdatasync(descriptor)
            os.replace(draft, self._path)  # noqa: PTH105  called for many tasks: no Path object
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._size = self._live_size = len(lines)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def intend(self, tasks: Iterable[Task]) -> None:
        """Write intents; they are on disk when this returns. Raises OSError."""
        self._append(_lines(task.encoded() for task in tasks))
        if self._descriptor is not None:
            os.fdatasync(self._descriptor)

    def note(self, states: Iterable[str]) -> None:
        """Write states. A full disk is ignored, because the states are sent to the agent as well."""
        with suppress(OSError):
            self._append(_lines(states))

    def forget(self, keys: Iterable[str]) -> None:
        with suppress(OSError):
            self._append(_lines([wire.encode({"forget": list(keys)})]))

    @property
    def overgrown(self) -> bool:
        """Whether most of the file is obsolete."""
        return self._size > max(_COMPACT_AT, 4 * self._live_size)

    @property
    def idle_weight(self) -> bool:
        """Whether a file without tasks is large enough to be replaced."""
        return self._size > _IDLE_COMPACT_AT

    def _append(self, data: bytes) -> None:
        if self._descriptor is None:
            raise OSError(f"{self._path} is not open")
        try:
            _write_all(self._descriptor, data)
        except OSError:
            # The next line must not follow half a line.
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
                os.lseek(self._descriptor, self._size, os.SEEK_SET)
            raise
        self._size += len(data)

    def _read_lines(self) -> Iterator[dict[str, Any]]:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        for line in data.splitlines():
            with suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    yield found


def _lines(encoded: Iterable[str]) -> bytes:
    return "".join(f"{one}\n" for one in encoded).encode("ascii")


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _apply(line: dict[str, Any], tasks: dict[str, Task]) -> None:
    if "forget" in line:
        for key in line["forget"]:
            tasks.pop(key, None)
        return
    # Earlier versions wrote intents under a separate key.
    body = line.get("intent", line)
    with suppress(KeyError, TypeError, ValueError):  # the line was written by another version
        task = _read(body)
        tasks[task.key] = task


def _read(body: dict[str, Any]) -> Task:
    known = {
        "op",
        "key",
        "marker",
        "boot_id",
        "phase",
        "pid",
        "start_ticks",
        "started_at",
        "started_wall",
        "why",
    }
    return Task(
        key=body["key"],
        phase=Phase(body["phase"]),
        marker=body["marker"],
        boot_id=body["boot_id"],
        pid=body["pid"],
        start_ticks=body["start_ticks"],
        started_at=body["started_at"],
        started_wall=body["started_wall"],
        why=body["why"],
        exit={name: value for name, value in body.items() if name not in known},
    )
