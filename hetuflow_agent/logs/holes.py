"""Gives the disk back what has been shipped of a file that is still written to.

A hole is punched at the front: the file keeps its length, so offsets stay what they are and whoever writes to
it notices nothing. Where the file system cannot do that, the log of a task stays as it is until that has
ended; that of a daemon is rolled on: cut to nothing, and made as long as it was.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from contextlib import suppress
from functools import cache
from typing import Final

import structlog

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.logs")

_KEEP_SIZE: Final = 0x01
_PUNCH_HOLE: Final = 0x02
# Small holes are not worth the call.
STEP: Final = 4 * 1024 * 1024
_LEAST_STEP: Final = 64 * 1024
# What comes behind is held in memory while a log is rolled on; more of it waits until it has been shipped.
_MOST_HELD: Final = 1024 * 1024


def step_within(limit: int | None) -> int:
    """How much of each stream may wait to be given back, for logs that may have `limit` bytes on the disk."""
    return STEP if limit is None else max(_LEAST_STEP, min(STEP, limit // 4))


def punch(path: str, start: int, stop: int) -> bool:
    """Whether the bytes from `start` to `stop` take no more room."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _fallocate(descriptor, start, stop - start)
    finally:
        os.close(descriptor)


def roll_on(path: str, stop: int) -> bool:
    """Whether the bytes before `stop` take no more room, of a file that others append to.

    What comes behind is written there again. What others append within the microseconds of this is lost, as
    whenever a log is cut that somebody has open.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        size = os.fstat(descriptor).st_size
        if size - stop > _MOST_HELD:
            return False
        behind = os.pread(descriptor, size - stop, stop)
        os.ftruncate(descriptor, 0)
        os.ftruncate(descriptor, size)
        os.pwrite(descriptor, behind, stop)
    except OSError as error:
        log.warning("A log could not be rolled on.", path=path, error=str(error))
        return False
    finally:
        os.close(descriptor)
    return True


@cache
def gives_room_back(folder: str) -> bool:
    """Whether one of the two helps on a folder's file system: on some a hole takes as much room as bytes."""
    with suppress(OSError), tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(b"x" * _LEAST_STEP)
        file.flush()
        os.fsync(file.fileno())
        before = os.fstat(file.fileno()).st_blocks
        if punch(file.name, 0, _LEAST_STEP) or roll_on(file.name, _LEAST_STEP):
            os.fsync(file.fileno())
            after = os.fstat(file.fileno()).st_blocks
            if after < before or before == 0:  # those that count nothing hold nobody to anything
                return True
    log.warning("This file system gives nothing back of a log that grows: daemons have no output_limit here.")
    return False


def _fallocate(descriptor: int, start: int, length: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "fallocate"):
        return False
    flags = ctypes.c_int(_PUNCH_HOLE | _KEEP_SIZE)
    return not libc.fallocate(descriptor, flags, ctypes.c_int64(start), ctypes.c_int64(length))
