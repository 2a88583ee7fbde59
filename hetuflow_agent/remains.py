"""What work has left in its folder: looked at once, when nobody is there any more who could change it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hetuflow_agent.workdir import SCRIPT, TASK_FILES, WORK, ClaimDirectory

_FILE_MODES: Final = dict.fromkeys(TASK_FILES, stat.S_IFREG | 0o600) | {SCRIPT: stat.S_IFREG | 0o700}
_WORK_MODE: Final = stat.S_IFDIR | 0o700
# With a script and without.
_AS_MADE: Final = ({WORK, *TASK_FILES}, {WORK, SCRIPT, *TASK_FILES})


@dataclass(frozen=True, slots=True)
class Remains:
    """`sizes`: of what is there for every task and still is what it was made, in bytes.

    `as_made`: with these emptied the folder would be as new.
    """

    sizes: Mapping[str, int]
    as_made: bool


def remains_of(directory: ClaimDirectory) -> Remains:
    try:
        return _look(directory.path)
    except OSError:
        return Remains({}, as_made=False)


def _look(path: str) -> Remains:
    names, sizes, us = os.listdir(path), {}, os.geteuid()  # noqa: PTH208  of every task: no object for each name
    for name in names:
        wanted = _FILE_MODES.get(name)
        if wanted is not None:
            found = os.lstat(f"{path}/{name}")
            # Another name for it somewhere would let whoever knows that read and write what comes next.
            if found.st_mode == wanted and found.st_uid == us and found.st_nlink == 1:
                sizes[name] = found.st_size
    whole = len(sizes) + 1 == len(names) and set(names) in _AS_MADE
    return Remains(sizes, whole and _is_empty(f"{path}/{WORK}", us))


def _is_empty(work: str, us: int) -> bool:
    found = os.lstat(work)
    return found.st_mode == _WORK_MODE and found.st_uid == us and not os.listdir(work)  # noqa: PTH208  as above
