"""Work folders that are used again: making a file costs far more than renaming a folder.

ext4 does not use an inode again for minutes after its file was removed, and searches past all of these for
each new file. An agent that makes and removes six files per short task would do little else. A folder is used
again only if it is as new once its files are emptied, and no process of its task is left that could have one
of them open. It stays where it is until another claim takes it, which renames it.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from hetuflow_agent.folders.workdir import SCRIPT, TASK_FILES, WORK, ClaimDirectory

# After this many claims without a spare folder, more claims are likely: then a stock is made.
_MANY: Final = 16
# The stock is made when no folder was taken for this many seconds: running work needs the CPU.
_QUIET: Final = 0.05
# This many folders are made between two checks of that, and of the free space.
_AT_ONCE: Final = 8
_FILE_MODES: Final = dict.fromkeys(TASK_FILES, stat.S_IFREG | 0o600) | {SCRIPT: stat.S_IFREG | 0o700}
_WORK_MODE: Final = stat.S_IFDIR | 0o700
# The entries of a new folder, without and with a script.
_AS_MADE: Final = ({WORK, *TASK_FILES}, {WORK, SCRIPT, *TASK_FILES})
# No common file system has a coarser time stamp than this, in seconds.
_SETTLED: Final = 3.0


class FolderFingerprint(msgspec.Struct, frozen=True):
    """Shows without reading a folder that no entry was added to it or removed from it.

    `folder` is the time when the entries of the folder changed last, `work` the time of the last change of
    the work directory, in nanoseconds. `files` are the entries. A change within the same tick of the file
    system's clock would not show, so a fingerprint is `trusted` only for a task that begins long after it was
    taken `at`.
    """

    folder: int
    work: int
    at: float
    files: Collection[str] = ()
    trusted: bool = False

    def for_a_task_at(self, now: float) -> FolderFingerprint:
        """The fingerprint for a task that begins now; both times are seconds of the monotonic clock."""
        trusted = now - self.at > _SETTLED
        return self if trusted is self.trusted else msgspec.structs.replace(self, trusted=trusted)


UNKNOWN: Final = FolderFingerprint(0, 0, 0.0)


class FolderContents(msgspec.Struct, frozen=True):
    """What the work folder of an ended task contains.

    `sizes`: bytes of the files that every folder has and that the task did not replace. `as_made`: the folder
    is as new once these files are emptied. `fingerprint`: of the folder as it is then.
    """

    sizes: Mapping[str, int]
    as_made: bool
    fingerprint: FolderFingerprint = UNKNOWN


class SpareFolders:
    """Any thread may offer a folder; the event loop takes them."""

    name = "spare folders"

    def __init__(
        self,
        folder: Path,
        *,
        most: int,
        ready: int = 0,
        stock: int = 0,
        has_plenty: Callable[[], bool] = lambda: True,
    ) -> None:
        """`ready`: this many folders are made in advance, so that work need not wait for its folder.

        `stock`: this many are made once much work has come, if the disk `has_plenty` of space.
        """
        self._folder = folder
        self._most = most
        self._ready = ready
        self._stock = stock
        self._has_plenty = has_plenty
        self._numbers = count()
        # By path; the folder that was added last is taken first, because it is still cached.
        self._spares: dict[str, FolderFingerprint] = {}
        self._missed = 0
        self._wanted_at = 0.0
        # How many folders this process has made.
        self._made = 0
        self._at_work: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Use spare folders of an earlier process that are as new; they are inspected in the background."""
        self._stopping.clear()
        with suppress(OSError):  # then no folder is used again
            self._folder.mkdir(0o700, exist_ok=True)
        left = await asyncio.to_thread(self._left)
        await asyncio.to_thread(self._take_over, left, self._ready)
        await asyncio.to_thread(self.replenish)
        if left:
            self._begin(asyncio.to_thread(self._sort_out, left))

    async def stop(self) -> None:
        """Move all spare folders to one place, where the next process of the agent finds them."""
        self._stopping.set()
        await asyncio.gather(*self._at_work)
        await asyncio.to_thread(self._gather)
        self._spares.clear()

    async def settled(self) -> None:
        """Return when no folder is being made or inspected."""
        await asyncio.gather(*self._at_work)

    def take(self, directory: ClaimDirectory) -> FolderFingerprint | None:
        """Rename a spare folder to `directory` and return its fingerprint; None if the stock is empty."""
        self._wanted_at = now = time.monotonic()
        # An ended claim may come again: its folder is among the spare ones, and must not be made anew.
        fingerprint = self._spares.pop(directory.path, None)
        if fingerprint is None:
            try:
                spare, fingerprint = self._spares.popitem()
            except KeyError:
                self._note_missing()
                return None
            try:
                os.rename(spare, directory.path)  # noqa: PTH104  for every task: no Path object
            except FileNotFoundError:  # the spare folder was removed by hand
                return None
            except OSError:  # the target exists
                self._spares[spare] = fingerprint
                return None
        return fingerprint.for_a_task_at(now)

    def offer(self, directory: ClaimDirectory, contents: FolderContents) -> bool:
        """Keep the folder for another claim if it is as new; otherwise the caller has to remove it."""
        if not contents.as_made or len(self._spares) >= self._most:
            return False
        try:
            _empty_all(directory, contents)
        except OSError:
            return False
        self._spares[directory.path] = contents.fingerprint
        return True

    def replenish(self) -> None:
        """Make as many folders as have to be ready: not all come back. Blocks, so call it in a thread."""
        while len(self._spares) < self._ready and self._make_one():
            pass

    def _note_missing(self) -> None:
        self._missed += 1
        self._made += 1
        if self._missed == _MANY:
            self._begin(self._stock_up())

    def _gather(self) -> None:
        """Without this, the next process could not distinguish them from folders in use."""
        for path in self._spares:
            if os.path.dirname(path) != str(self._folder):  # noqa: PTH120  hundreds of paths, during the stop
                with suppress(OSError):
                    os.rename(path, f"{self._folder}/{next(self._numbers)}")  # noqa: PTH104  hundreds of paths, during the stop

    async def _stock_up(self) -> None:
        """Make folders for the next burst; folders that this burst makes for itself count."""
        while self._made < self._stock and not self._stopping.is_set():
            if self._wanted_at + _QUIET > time.monotonic():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_QUIET):
                        await self._stopping.wait()
            elif not self._has_plenty() or not await asyncio.to_thread(self._make_some):
                return

    def _make_some(self) -> bool:
        return all(self._make_one() for _ in range(min(_AT_ONCE, self._stock - self._made)))

    def _make_one(self) -> bool:
        if self._stopping.is_set():
            return False
        self._made += 1
        spare = ClaimDirectory(f"{self._folder}/{next(self._numbers)}")
        try:
            spare.make(parents=False)
        except OSError:  # a claim that needs a folder gets the error
            return False
        self._spares[spare.path] = inspect_folder(spare).fingerprint
        return True

    def _left(self) -> deque[str]:
        """The names of the folders that an earlier process has left; new folders get other names."""
        try:
            left = deque(os.listdir(self._folder))  # noqa: PTH208  only names are needed
        except OSError:
            return deque()
        self._numbers = count(max((int(name) for name in left if name.isdecimal()), default=-1) + 1)
        return left

    def _sort_out(self, left: deque[str]) -> None:
        self._take_over(left, self._most)
        while left and not self._stopping.is_set():
            ClaimDirectory(self._folder / left.popleft()).remove()

    def _take_over(self, left: deque[str], enough: int) -> None:
        """Use as many of these as needed; remove folders that were changed."""
        while left and len(self._spares) < enough and not self._stopping.is_set():
            directory = ClaimDirectory(self._folder / left.popleft())
            if not self.offer(directory, inspect_folder(directory)):
                directory.remove()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._at_work.append(asyncio.create_task(work, name=self.name))


def _empty_all(directory: ClaimDirectory, contents: FolderContents) -> None:
    for name, size in contents.sizes.items():
        if size:
            file = directory.at(name)
            os.close(os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC))


def inspect_folder(directory: ClaimDirectory, fingerprint: FolderFingerprint = UNKNOWN) -> FolderContents:
    """Inspect a work folder after its processes have exited. `fingerprint`: of the folder before the task."""
    try:
        return _inspect(directory.path, fingerprint)
    except OSError:
        return FolderContents({}, as_made=False)


def _inspect(path: str, before: FolderFingerprint) -> FolderContents:
    us = os.geteuid()
    folder, work = os.lstat(path).st_mtime_ns, _stat_work(f"{path}/{WORK}")
    untouched = work is not None and (folder, work.st_ctime_ns) == (before.folder, before.work)
    if untouched and before.trusted:
        sizes = _sizes(path, before.files, us)
        return FolderContents(sizes, len(sizes) == len(before.files), before)
    names = os.listdir(path)  # noqa: PTH208  for every task: no Path object per name
    sizes = _sizes(path, names, us)
    if work is None or len(sizes) + 1 != len(names) or set(names) not in _AS_MADE:
        return FolderContents(sizes, as_made=False)
    if work.st_mode != _WORK_MODE or work.st_uid != us or not _is_empty(path):
        return FolderContents(sizes, as_made=False)
    fingerprint = (
        before if untouched else FolderFingerprint(folder, work.st_ctime_ns, time.monotonic(), tuple(sizes))
    )
    return FolderContents(sizes, as_made=True, fingerprint=fingerprint)


def _sizes(path: str, names: Collection[str], us: int) -> dict[str, int]:
    sizes = {}
    for name in names:
        wanted = _FILE_MODES.get(name)
        if wanted is not None:
            found = os.lstat(f"{path}/{name}")
            # A hard link elsewhere would give access to the files of the next task.
            if found.st_mode == wanted and found.st_uid == us and found.st_nlink == 1:
                sizes[name] = found.st_size
    return sizes


def _stat_work(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _is_empty(path: str) -> bool:
    return not os.listdir(f"{path}/{WORK}")  # noqa: PTH208  for every task: no Path object per name
