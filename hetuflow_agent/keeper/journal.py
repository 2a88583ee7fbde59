"""What the keeper has on disk: that it meant to start something, what came of it, how it ended.

One line of JSON each, appended. An intent is flushed to the disk before anything is started, all that came
together with one flush; so no intent means that nothing ran. Everything else only has to survive the keeper.
A line that was cut off by a crash is the last one and is passed over.
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
# With nothing of interest in it, begun anew from this size on: less is not worth a new file and its flush.
_IDLE_COMPACT_AT: Final = 128 * 1024


class Journal:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._size = 0
        self._live_size = 0

    def load(self) -> dict[str, Task]:
        """Tasks whose end no agent has taken over; those without an end are told as running."""
        tasks: dict[str, Task] = {}
        for line in self._read_lines():
            _apply(line, tasks)
        return tasks

    def open(self, tasks: Iterable[Task]) -> None:
        """Begin anew with what is still of interest."""
        self.close()
        draft = self._path.with_name(self._path.name + ".new")
        lines = _lines(task.encoded() for task in tasks)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(descriptor, lines)
            os.fdatasync(descriptor)
            os.replace(draft, self._path)  # noqa: PTH105  one rename on the hot path of a process that counts imports
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
        """On disk when this returns; raises OSError when it cannot be."""
        self._append(_lines(task.encoded() for task in tasks))
        if self._descriptor is not None:
            os.fdatasync(self._descriptor)

    def note(self, states: Iterable[str]) -> None:
        """States as they are told; a full disk is borne, for the agent is told as well."""
        with suppress(OSError):
            self._append(_lines(states))

    def forget(self, keys: Iterable[str]) -> None:
        with suppress(OSError):
            self._append(_lines([wire.encode({"forget": list(keys)})]))

    @property
    def overgrown(self) -> bool:
        """Whether most of it is no longer of interest."""
        return self._size > max(_COMPACT_AT, 4 * self._live_size)

    @property
    def idle_weight(self) -> bool:
        """Whether it is worth beginning anew when nothing in it is of interest."""
        return self._size > _IDLE_COMPACT_AT

    def _append(self, data: bytes) -> None:
        if self._descriptor is None:
            raise OSError(f"{self._path} is not open")
        try:
            _write_all(self._descriptor, data)
        except OSError:
            # Half a line would spoil the next one.
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
    # Earlier versions set an intent apart; its phase does that.
    body = line.get("intent", line)
    with suppress(KeyError, TypeError, ValueError):  # a line of another version says nothing to us
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
