"""Gives the disk back what has been shipped of a file that is still written to.

A hole is punched at the front: the file keeps its length, so offsets stay what they are and whoever writes to
it notices nothing. Where the file system cannot do that, the file stays as it is until its task has ended.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_KEEP_SIZE: Final = 0x01
_PUNCH_HOLE: Final = 0x02
# Small holes are not worth the call.
STEP: Final = 4 * 1024 * 1024


def punch(path: str, start: int, stop: int) -> bool:
    """Whether the bytes from `start` to `stop` take no more room."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "fallocate"):
        return False
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        failed = libc.fallocate(
            descriptor,
            ctypes.c_int(_PUNCH_HOLE | _KEEP_SIZE),
            ctypes.c_int64(start),
            ctypes.c_int64(stop - start),
        )
    finally:
        os.close(descriptor)
    return not failed
