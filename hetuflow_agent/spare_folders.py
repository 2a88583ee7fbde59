"""Folders of claims that are used again: making a file costs far more than renaming one.

ext4 gives no inode out again for minutes after its file was removed and searches past all of them for each
new one, so an agent that makes and removes six files per short task ends up doing little else. A folder is
used again only if it is as it was made once its files are emptied, and nothing of its task lives on that
could still have one of them open.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections import deque
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from hetuflow_agent.workdir import SCRIPT, TASK_FILES, WORK, ClaimDirectory, remove_tree

_MODES: Final = {SCRIPT: 0o700} | dict.fromkeys(TASK_FILES, 0o600)
_FOLDER_MODE: Final = 0o700


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
            os.rename(spare, directory.root)  # noqa: PTH104  on the way of every task
        except OSError:  # something is there already, or somebody removed the spare
            self._spares.append(spare)
            return False
        return True

    def offer(self, directory: ClaimDirectory) -> bool:
        """Keep it for another claim if it can be had as new; False leaves it to be removed."""
        if len(self._spares) >= self._most:
            return False
        spare = str(self._folder / str(next(self._numbers)))
        try:
            if not _renewed(directory.root):
                return False
            os.rename(directory.root, spare)  # noqa: PTH104  as above
        except OSError:
            return False
        self._spares.append(spare)
        return True

    def replenish(self) -> None:
        """Make as many as are to be ready: not all are had back. Blocks, so it is for a thread."""
        while len(self._spares) < self._ready:
            spare = str(self._folder / str(next(self._numbers)))
            try:
                ClaimDirectory(Path(spare)).make(parents=False)
            except OSError:  # whoever needs one is told, when it is made for them
                return
            self._spares.append(spare)


def _renewed(root: Path) -> bool:
    """Whether a claim's folder is as it was made, its files emptied."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        names = set(os.listdir(descriptor))  # noqa: PTH208  of an open folder
        if WORK not in names or not names.issuperset(TASK_FILES):
            return False
        return all(_as_made(name, descriptor) for name in names)
    finally:
        os.close(descriptor)


def _as_made(name: str, parent: int) -> bool:
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if found.st_uid != os.geteuid():
        return False
    if name == WORK:
        return found.st_mode == stat.S_IFDIR | _FOLDER_MODE and _is_empty(name, parent)
    # Another name for it somewhere would let whoever knows that read and write what comes next.
    if name not in _MODES or found.st_mode != stat.S_IFREG | _MODES[name] or found.st_nlink != 1:
        return False
    if found.st_size:
        os.close(os.open(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent))
    return True


def _is_empty(name: str, parent: int) -> bool:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        return not os.listdir(descriptor)  # noqa: PTH208  of an open folder
    finally:
        os.close(descriptor)
