"""A PostgreSQL for one test run: in memory where there is room, and swept up even after a kill."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from hetuflow_core.errors import HetuflowError
from hetuflow_server.embedded import EmbeddedPostgres

PREFIX = "hetuflow-test-"
MEMORY = Path("/dev/shm")
ENOUGH_MEMORY = 1024**3
# A folder without a lock is one that is just being made, unless it is this old.
ABANDONED_AFTER = 600.0

# Speed for durability: nothing of it is needed after the run. Autovacuum would change plans under tests
# that look at them.
SETTINGS: dict[str, str | int | float | bool] = {
    "fsync": False,
    "synchronous_commit": False,
    "full_page_writes": False,
    "autovacuum": False,
    "max_connections": 200,
    "wal_level": "minimal",
    "max_wal_senders": 0,
    "max_wal_size": "256MB",
    "dynamic_shared_memory_type": "mmap",  # inside the folder, so that a killed server leaves nothing outside
}


def bases() -> list[Path]:
    """Folders for throw-away clusters, best first."""
    on_disk = Path(tempfile.gettempdir())
    try:
        free = os.statvfs(MEMORY)
    except OSError:
        return [on_disk]
    roomy = os.access(MEMORY, os.W_OK) and free.f_bavail * free.f_frsize >= ENOUGH_MEMORY
    return [MEMORY, on_disk] if roomy else [on_disk, MEMORY]


def start_throwaway(base: Path | None = None) -> EmbeddedPostgres:
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base or bases()[0]))
    if os.geteuid() == 0:
        folder.chmod(0o755)  # for the account that root lends to PostgreSQL
    cluster = EmbeddedPostgres(folder, settings=SETTINGS)
    try:
        cluster.start_blocking()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return cluster


def sweep(folders: Iterable[Path]) -> list[Path]:
    """Remove what killed runs left behind; a living run holds the lock of its folder."""
    swept = []
    for folder in (folder for base in folders for folder in base.glob(f"{PREFIX}*")):
        try:
            if _is_abandoned(folder):
                EmbeddedPostgres(folder).destroy()
                shutil.rmtree(folder, ignore_errors=True)
                swept.append(folder)
        except (HetuflowError, OSError):  # in use, another user's, or swept by a neighbour at the same moment
            continue
    return swept


def _is_abandoned(folder: Path) -> bool:
    status = folder.stat()
    if status.st_uid != os.geteuid():
        return False
    return (folder / "lock").exists() or time.time() - status.st_mtime > ABANDONED_AFTER
