"""A disk small enough to be filled: a file system in memory, where we may mount one."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

_MIB = 1 << 20
_SIZE = 160 * _MIB
# Less than an agent wants to have for new work, and more than what runs may still need.
_LEFT = 8 * _MIB


class SmallDisk:
    """Mounted on a folder; `mounted` is false where that is not allowed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._filling = folder / "filling"
        self.mounted = False

    def mount(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        program = shutil.which("mount")
        if os.geteuid() == 0 and program is not None:
            command = [program, "-t", "tmpfs", "-o", f"size={_SIZE},mode=755", "tmpfs", str(self._folder)]
            self.mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603  ours

    def fill(self) -> None:
        free = os.statvfs(self._folder)
        with self._filling.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - _LEFT))

    def make_room(self) -> None:
        self._filling.unlink(missing_ok=True)

    def unmount(self) -> None:
        program = shutil.which("umount")
        if self.mounted and program is not None:
            with suppress(OSError):
                subprocess.run([program, "-l", str(self._folder)], check=False, capture_output=True)  # noqa: S603  ours
