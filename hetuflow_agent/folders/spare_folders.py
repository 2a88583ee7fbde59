"""Folders of claims that are used again: making a file costs far more than renaming one.

ext4 gives no inode out again for minutes after its file was removed and searches past all of them for each
new one, so an agent that makes and removes six files per short task ends up doing little else. A folder is
used again only if it is as it was made once its files are emptied, and nothing of its task lives on that
could still have one of them open. It stays where it is until another claim takes it, which renames it then.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

from hetuflow_agent.folders.folder_fingerprint import FolderContents, FolderFingerprint, inspect_folder
from hetuflow_agent.folders.workdir import ClaimDirectory

# Work that found no spare one so often came in numbers, and more of it may: then a stock is made for it.
_MANY: Final = 16
# It is made while none has been wanted for so many seconds: who works has a use for the processor.
_QUIET: Final = 0.05
# Between two looks at whether it is still quiet, and there is room for more.
_AT_ONCE: Final = 8


class SpareFolders:
    """Any thread may offer one; the event loop takes them."""

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
        """`ready`: so many are made ahead, for work that is not to wait until its folder is made.

        `stock`: so many are there once work has come in numbers, if the disk `has_plenty` of room.
        """
        self._folder = folder
        self._most = most
        self._ready = ready
        self._stock = stock
        self._has_plenty = has_plenty
        self._numbers = count()
        # By where they are; the one that was put there last is taken first, for it is still in memory.
        self._spares: dict[str, FolderFingerprint] = {}
        self._missed = 0
        self._wanted_at = 0.0
        # Those of this life, wherever they are by now.
        self._made = 0
        self._at_work: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """What an earlier life has left is used if it is as new, which is looked at while others start."""
        self._stopping.clear()
        with suppress(OSError):  # then nothing is kept, and nothing is missed
            self._folder.mkdir(0o700, exist_ok=True)
        left = await asyncio.to_thread(self._left)
        await asyncio.to_thread(self._take_over, left, self._ready)
        await asyncio.to_thread(self.replenish)
        if left:
            self._begin(asyncio.to_thread(self._sort_out, left))

    async def stop(self) -> None:
        """They stay, for the next life, which finds them all in one place."""
        self._stopping.set()
        await asyncio.gather(*self._at_work)
        await asyncio.to_thread(self._gather)
        self._spares.clear()

    async def settled(self) -> None:
        """Return when everything is made, or looked at, that is being."""
        await asyncio.gather(*self._at_work)

    def take(self, directory: ClaimDirectory) -> FolderFingerprint | None:
        """Put a spare one in its place and tell its seal; None if the caller has to make one."""
        self._wanted_at = now = time.monotonic()
        # Of a claim that is over and comes again; whoever made it anew would take it from under our feet.
        fingerprint = self._spares.pop(directory.path, None)
        if fingerprint is None:
            try:
                spare, fingerprint = self._spares.popitem()
            except KeyError:
                self._note_missing()
                return None
            try:
                os.rename(spare, directory.path)  # noqa: PTH104  on the way of every task
            except FileNotFoundError:  # somebody removed the spare, or everything
                return None
            except OSError:  # something is there already
                self._spares[spare] = fingerprint
                return None
        return fingerprint.for_a_task_at(now)

    def offer(self, directory: ClaimDirectory, contents: FolderContents) -> bool:
        """Keep it for another claim if it can be had as new; False leaves it to be removed."""
        if not contents.as_made or len(self._spares) >= self._most:
            return False
        try:
            _empty_all(directory, contents)
        except OSError:
            return False
        self._spares[directory.path] = contents.fingerprint
        return True

    def replenish(self) -> None:
        """Make as many as are to be ready: not all are had back. Blocks, so it is for a thread."""
        while len(self._spares) < self._ready and self._make_one():
            pass

    def _note_missing(self) -> None:
        self._missed += 1
        self._made += 1
        if self._missed == _MANY:
            self._begin(self._stock_up())

    def _gather(self) -> None:
        """After a life that ended otherwise, nobody could tell them from folders that are still in use."""
        for path in self._spares:
            if os.path.dirname(path) != str(self._folder):  # noqa: PTH120  of hundreds, on the way out
                with suppress(OSError):
                    os.rename(path, f"{self._folder}/{next(self._numbers)}")  # noqa: PTH104  as above

    async def _stock_up(self) -> None:
        """For the next burst; what this one makes for itself counts."""
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
        except OSError:  # whoever needs one is told, when it is made for them
            return False
        self._spares[spare.path] = inspect_folder(spare).fingerprint
        return True

    def _left(self) -> deque[str]:
        """The names of what an earlier life has left; what is made from now on has others."""
        try:
            left = deque(os.listdir(self._folder))  # noqa: PTH208  names are what is wanted
        except OSError:
            return deque()
        self._numbers = count(max((int(name) for name in left if name.isdecimal()), default=-1) + 1)
        return left

    def _sort_out(self, left: deque[str]) -> None:
        self._take_over(left, self._most)
        while left and not self._stopping.is_set():
            ClaimDirectory(self._folder / left.popleft()).remove()

    def _take_over(self, left: deque[str], enough: int) -> None:
        """Have so many of these as spares, without those that somebody has changed."""
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
