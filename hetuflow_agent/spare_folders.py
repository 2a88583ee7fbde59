"""Folders of claims that are used again: making a file costs far more than renaming one.

ext4 gives no inode out again for minutes after its file was removed and searches past all of them for each
new one, so an agent that makes and removes six files per short task ends up doing little else. A folder is
used again only if it is as it was made once its files are emptied, and nothing of its task lives on that
could still have one of them open.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import suppress
from itertools import count
from pathlib import Path

from hetuflow_agent.remains import Remains
from hetuflow_agent.workdir import ClaimDirectory, remove_tree


class SpareFolders:
    """Any thread may offer one and take one."""

    name = "spare folders"

    def __init__(self, folder: Path, *, most: int, ready: int = 0) -> None:
        """`ready`: so many are made ahead, for work that is not to wait until its folder is made."""
        self._folder = folder
        self._most = most
        self._ready = ready
        self._numbers = count()
        self._spares: deque[str] = deque()

    async def start(self) -> None:
        """Nothing of an earlier life is used: who knows what became of it since."""
        await asyncio.to_thread(remove_tree, self._folder)
        with suppress(OSError):  # then nothing is kept, and nothing is missed
            self._folder.mkdir(0o700)
        await asyncio.to_thread(self.replenish)

    async def stop(self) -> None:
        self._spares.clear()
        await asyncio.to_thread(remove_tree, self._folder)

    def take(self, directory: ClaimDirectory) -> bool:
        """Whether a spare one is in its place now."""
        try:
            spare = self._spares.popleft()
        except IndexError:
            return False
        try:
            os.rename(spare, directory.path)  # noqa: PTH104  on the way of every task
        except OSError:  # something is there already, or somebody removed the spare
            self._spares.append(spare)
            return False
        return True

    def offer(self, directory: ClaimDirectory, remains: Remains) -> bool:
        """Keep it for another claim if it can be had as new; False leaves it to be removed."""
        if not remains.as_made or len(self._spares) >= self._most:
            return False
        spare = f"{self._folder}/{next(self._numbers)}"
        try:
            for name, size in remains.sizes.items():
                if size:
                    _empty(directory.at(name))
            os.rename(directory.path, spare)  # noqa: PTH104  as above
        except OSError:
            return False
        self._spares.append(spare)
        return True

    def replenish(self) -> None:
        """Make as many as are to be ready: not all are had back. Blocks, so it is for a thread."""
        while len(self._spares) < self._ready:
            spare = f"{self._folder}/{next(self._numbers)}"
            try:
                ClaimDirectory(spare).make(parents=False)
            except OSError:  # whoever needs one is told, when it is made for them
                return
            self._spares.append(spare)


def _empty(file: str) -> None:
    os.close(os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC))
