"""Folders of claims after their end: used again or removed, or kept for a while if the work failed.

DIR/failed/ID-CLAIM is what a failed attempt left; its time of change is when it was put there. What is old
goes, and the oldest go when all of them are too large together or the disk has no room for work.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from hetuflow_agent.folders.spare_folders import FolderContents, SpareFolders
from hetuflow_agent.folders.workdir import ClaimDirectory, DataDirectory
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.runtime.loop import Loop
from hetuflow_core.runtime.timers import Timers

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.workdir")

_EVERY: Final = 30.0
_BLOCK: Final = 512  # what st_blocks counts in


@dataclass(frozen=True, slots=True)
class _Kept:
    directory: ClaimDirectory
    since: float
    size: int


class KeptFolders:
    name = "kept folders"

    def __init__(
        self,
        data: DataDirectory,
        *,
        keep_seconds: float,
        most_bytes: int,
        clock: Clock,
        timers: Timers,
        rng: random.Random,
        spares: SpareFolders | None = None,
    ) -> None:
        self._data = data
        self._spares = spares
        self._folder = data.failed
        self.keep_seconds = keep_seconds
        self.most_bytes = most_bytes
        self._clock = clock
        self._lock = threading.Lock()
        # By name: what is kept does not grow any more.
        self._sizes: dict[str, int] = {}
        self._loop = Loop(self.name, self.run_once, timers=timers, rng=rng, every=_EVERY)

    async def start(self) -> None:
        await self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def run_once(self) -> int:
        return await asyncio.to_thread(self.sweep)

    def reuse(self, directory: ClaimDirectory, contents: FolderContents, *, failed: bool) -> bool:
        """Whether it is kept for another claim; only if nobody has a file of it open any more."""
        if self._spares is None or (failed and self.keep_seconds > 0):
            return False
        return self._spares.offer(directory, contents)

    def dispose(self, directory: ClaimDirectory, *, failed: bool) -> None:
        """Nothing needs it any more; blocks, so it is for a thread."""
        if failed and self.keep_seconds > 0 and self._put_aside(directory):
            self.sweep()
        else:
            directory.remove()
        if self._spares is not None:
            self._spares.replenish()

    def sweep(self) -> int:
        """Remove what the rules no longer keep; how many that were. Blocks, so it is for a thread."""
        with self._lock:
            return self._sweep()

    def _put_aside(self, directory: ClaimDirectory) -> bool:
        now = self._clock.now().timestamp()
        target = self._folder / directory.name
        try:
            os.utime(directory.root, (now, now))
            self._folder.mkdir(0o700, exist_ok=True)
            directory.root.rename(target)
        except FileNotFoundError:
            return False  # an earlier life of the agent has put it aside
        except OSError as error:
            log.warning("The folder of a failed task cannot be kept.", path=str(target), error=str(error))
            return False
        log.info("The folder of a failed task is kept for a while.", path=str(target))
        return True

    def _sweep(self) -> int:
        kept = sorted(self._look(), key=lambda one: one.since)
        self._sizes = {one.directory.name: one.size for one in kept}
        too_old = self._clock.now().timestamp() - self.keep_seconds
        total, removed = sum(one.size for one in kept), 0
        for one in kept:
            if one.since > too_old and total <= self.most_bytes and not self._data.is_full():
                break
            one.directory.remove()
            self._sizes.pop(one.directory.name, None)
            total -= one.size
            removed += 1
        return removed

    def _look(self) -> Iterator[_Kept]:
        try:
            found = list(os.scandir(self._folder))
        except FileNotFoundError:
            return
        for entry in found:
            with suppress(FileNotFoundError):
                since = entry.stat(follow_symlinks=False).st_mtime
                size = self._sizes.get(entry.name)
                path = Path(entry.path)
                yield _Kept(ClaimDirectory(path), since, _size_of(path) if size is None else size)


def _size_of(folder: Path) -> int:
    """Bytes on disk; what cannot be looked into does not count."""
    total = 0
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(OSError):
                total += Path(parent, name).lstat().st_blocks * _BLOCK
    return total
