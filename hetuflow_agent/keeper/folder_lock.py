"""One keeper per folder: the lock goes with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from hetuflow_agent.keeper import wire


def lock_folder(folder: Path) -> int | None:
    """The descriptor that holds the lock; None if another process has it."""
    lock = os.open(folder / wire.LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
