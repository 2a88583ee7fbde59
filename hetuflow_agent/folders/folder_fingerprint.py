"""What work has left in its folder: looked at once, when nobody is there any more who could change it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from hetuflow_agent.folders.workdir import SCRIPT, TASK_FILES, WORK, ClaimDirectory

_FILE_MODES: Final = dict.fromkeys(TASK_FILES, stat.S_IFREG | 0o600) | {SCRIPT: stat.S_IFREG | 0o700}
_WORK_MODE: Final = stat.S_IFDIR | 0o700
# With a script and without.
_AS_MADE: Final = ({WORK, *TASK_FILES}, {WORK, SCRIPT, *TASK_FILES})
# No file system that is in use tells times further apart than this, in seconds.
_SETTLED: Final = 3.0


class FolderFingerprint(msgspec.Struct, frozen=True):
    """By which one knows that nothing was put into a folder, or taken away, without reading it.

    `folder` is when its entries changed last, `work` when anything about the work directory did, in
    nanoseconds. A change within the same tick of the file system's clock would not show, so a seal is
    `trusted` only for a task that comes long after the moment it was made `at`. `files` are in it.
    """

    folder: int
    work: int
    at: float
    files: Collection[str] = ()
    trusted: bool = False

    def for_a_task_at(self, now: float) -> FolderFingerprint:
        """For one that begins to use the folder now; both are seconds of this machine's monotonic clock."""
        trusted = now - self.at > _SETTLED
        return self if trusted is self.trusted else msgspec.structs.replace(self, trusted=trusted)


UNKNOWN: Final = FolderFingerprint(0, 0, 0.0)


class FolderContents(msgspec.Struct, frozen=True):
    """`sizes`: of what is there for every task and still is what it was made, in bytes.

    `as_made`: with these emptied the folder would be as new. `fingerprint`: as it is then.
    """

    sizes: Mapping[str, int]
    as_made: bool
    fingerprint: FolderFingerprint = UNKNOWN


def inspect_folder(directory: ClaimDirectory, fingerprint: FolderFingerprint = UNKNOWN) -> FolderContents:
    """`fingerprint`: of the folder as its task was given it."""
    try:
        return _look(directory.path, fingerprint)
    except OSError:
        return FolderContents({}, as_made=False)


def _look(path: str, before: FolderFingerprint) -> FolderContents:
    us = os.geteuid()
    folder, work = os.lstat(path).st_mtime_ns, _look_at_work(f"{path}/{WORK}")
    untouched = work is not None and (folder, work.st_ctime_ns) == (before.folder, before.work)
    if untouched and before.trusted:
        sizes = _sizes(path, before.files, us)
        return FolderContents(sizes, len(sizes) == len(before.files), before)
    names = os.listdir(path)  # noqa: PTH208  of every task: no object for each name
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
            # Another name for it somewhere would let whoever knows that read and write what comes next.
            if found.st_mode == wanted and found.st_uid == us and found.st_nlink == 1:
                sizes[name] = found.st_size
    return sizes


def _look_at_work(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _is_empty(path: str) -> bool:
    return not os.listdir(f"{path}/{WORK}")  # noqa: PTH208  as above
