"""The agent's folder on disk, and the folder of each claim in it.

DIR/lock                    held with flock by the agent that uses DIR; holds its pid
DIR/records.jsonl           the journal and the outbox (see outbox.py)
DIR/instances/ID-CLAIM/     one claim of an instance: work/ (where it runs), stdout, stderr, output,
                            progress, script, secrets.json; after its end, emptied, until another takes it
DIR/failed/ID-CLAIM/        what a failed attempt left, kept for a while (see kept_folders.py)
DIR/spare/N/                an empty one that no claim has had in this life (see spare_folders.py)
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import structlog

from hetuflow_core.errors import DataDirectoryUnusable, DiskFull

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.workdir")

# A file that may not grow is a disk without room for it.
DISK_FULL_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Below this no more work is taken: what is under way still has to write its logs and results.
_LEAST_FREE_BYTES: Final = 32 * 1024 * 1024
_LEAST_FREE_FILES: Final = 256
# From here on nobody minds a few thousand small files more.
_PLENTY_BYTES: Final = 1024 * 1024 * 1024
_PLENTY_FILES: Final = 100_000
# Asked for each slot that is free: a disk does not fill up by 32 MiB unseen within this.
_LOOK_EVERY: Final = 0.05

STDOUT: Final = "stdout"
STDERR: Final = "stderr"
STREAMS: Final = (STDOUT, STDERR)
# To what one knows the name of; nobody else may look around or change anything.
_PASSABLE: Final = 0o711
WORK: Final = "work"
SCRIPT: Final = "script"
# There from the start, empty.
OUTPUT: Final = "output"
PROGRESS: Final = "progress"
TASK_FILES: Final = (OUTPUT, PROGRESS, *STREAMS)


@dataclass(frozen=True, slots=True, init=False)
class ClaimDirectory:
    """Where one claim lives on disk; as text, for it is asked for many times for every task."""

    path: str

    def __init__(self, root: Path | str) -> None:
        object.__setattr__(self, "path", str(root))

    @property
    def root(self) -> Path:
        return Path(self.path)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def work(self) -> Path:
        return self.root / WORK

    @property
    def output(self) -> Path:
        return self.root / OUTPUT

    @property
    def progress(self) -> Path:
        return self.root / PROGRESS

    @property
    def script(self) -> Path:
        return self.root / SCRIPT

    @property
    def secrets(self) -> Path:
        """Which versions of which secrets its task was given; never a value."""
        return self.root / "secrets.json"

    def stream(self, name: str) -> Path:
        return self.root / name

    def at(self, name: str) -> str:
        """Where a file of it is, without an object for each."""
        return f"{self.path}/{name}"

    def make(self, *, parents: bool = True) -> None:
        """Make it anew; an earlier attempt to make it may have left something."""
        try:
            self.root.mkdir(0o700, parents=parents)
        except FileExistsError:
            self.remove()
            self.root.mkdir(0o700)
        self.work.mkdir(0o700)
        for name in TASK_FILES:
            os.close(os.open(self.root / name, os.O_CREAT | os.O_WRONLY, 0o600))

    def write_script(self, text: str) -> Path:
        descriptor = os.open(self.script, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o700)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
        return self.script

    def give_to(self, uid: int, gid: int) -> None:
        """Let another user work in it. The folder itself stays ours: nothing in it can become a link."""
        for parent, folders, files in os.walk(self.work):
            for name in (*folders, *files):
                os.chown(Path(parent, name), uid, gid, follow_symlinks=False)
        for path in (self.work, self.script, *(self.root / name for name in TASK_FILES)):
            with suppress(FileNotFoundError):
                os.chown(path, uid, gid, follow_symlinks=False)
        self.root.chmod(_PASSABLE)

    def remove(self) -> None:
        """With everything in it; most tasks leave nothing but what was made for them."""
        try:
            for name in TASK_FILES:
                (self.root / name).unlink()
            self.work.rmdir()
            self.root.rmdir()
        except OSError:
            remove_tree(self.root)


class DataDirectory:
    """The folder as a part of the application: made, checked and locked at the start."""

    name = "data directory"

    def __init__(self, root: Path, *, passable: bool = False) -> None:
        """`passable`: other users may pass through, to the folders of claims that are theirs."""
        self._passable = passable
        self.root = root
        self._instances = str(self.instances)
        self._lock: int | None = None
        self._reported_full = False
        self._looked_at = -_LOOK_EVERY
        self._to_make: list[tuple[ClaimDirectory, asyncio.Future[None]]] = []
        self._making: asyncio.Task[None] | None = None

    @property
    def records(self) -> Path:
        return self.root / "records.jsonl"

    @property
    def instances(self) -> Path:
        return self.root / "instances"

    @property
    def failed(self) -> Path:
        return self.root / "failed"

    @property
    def spare(self) -> Path:
        return self.root / "spare"

    def claim(self, instance_id: UUID | str, token: UUID) -> ClaimDirectory:
        """Of this claim alone: a claim that PostgreSQL forgot in a crash is made again under its number."""
        return ClaimDirectory(f"{self._instances}/{instance_id}-{token.int >> 96:08x}")

    async def start(self) -> None:
        make_private(self.root)
        with _blaming(self.root):
            self._lock = self._take_lock()
            self.instances.mkdir(exist_ok=True, mode=0o700)
            if self._passable:
                self.let_pass()

    def let_pass(self) -> None:
        """Let other users through, to the folders of claims that are theirs."""
        for folder in (self.root, self.instances):
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | _PASSABLE)

    async def stop(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    async def make(self, directory: ClaimDirectory) -> None:
        """Make a claim's folder, together with what others want made meanwhile; raises OSError."""
        made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._to_make.append((directory, made))
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make_all(), name="make folders")
        await made

    async def _make_all(self) -> None:
        while self._to_make:
            batch, self._to_make = self._to_make, []
            faults = await asyncio.to_thread(_make_each, [directory for directory, _ in batch])
            for (_, made), fault in zip(batch, faults, strict=True):
                if made.done():  # whoever waited was cancelled
                    continue
                if fault is None:
                    made.set_result(None)
                else:
                    made.set_exception(fault)

    def remove_strays(self, wanted: Container[str]) -> None:
        """Folders of claims that nothing on record belongs to. Blocks, so it is for a thread."""
        with suppress(FileNotFoundError):
            for path in self.instances.iterdir():
                if path.name not in wanted:
                    ClaimDirectory(path).remove()

    def has_room(self) -> bool:
        """Whether there is room for more work, as of a moment ago; the change is logged, not every look."""
        now = time.monotonic()
        if now < self._looked_at + _LOOK_EVERY:
            return not self._reported_full
        self._looked_at = now
        full = self.is_full()
        if full and not self._reported_full:
            log.error(
                "The disk is nearly full and no more work is taken: free some space.", path=str(self.root)
            )
        elif self._reported_full and not full:
            log.info("There is room on the disk again and work is taken.", path=str(self.root))
        self._reported_full = full
        return not full

    def is_full(self) -> bool:
        return not self._has(_LEAST_FREE_BYTES, _LEAST_FREE_FILES)

    def has_plenty(self) -> bool:
        """Whether there is room for what is only useful."""
        return self._has(_PLENTY_BYTES, _PLENTY_FILES)

    def _has(self, free_bytes: int, free_files: int) -> bool:
        try:
            room = os.statvfs(self.root)
        except OSError:
            return False
        # A file system without a fixed number of files says 0 of 0.
        enough_files = room.f_files == 0 or room.f_favail >= free_files
        return room.f_bavail * room.f_frsize >= free_bytes and enough_files

    def _take_lock(self) -> int:
        lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            raise DataDirectoryUnusable(
                f"{self.root} is in use by another agent (process {holder or 'unknown'}): "
                "stop that one or set another agent.data_dir."
            ) from None
        os.ftruncate(lock, 0)
        os.write(lock, b"%d\n" % os.getpid())
        return lock


def make_private(folder: Path) -> None:
    """Make it if it is not there, for us alone."""
    if folder.exists() and not folder.is_dir():
        raise DataDirectoryUnusable(f"{folder} is a file: name a folder as agent.data_dir.")
    with _blaming(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def remove_tree(root: Path) -> None:
    """With everything in it, also what was made hard to remove."""
    shutil.rmtree(root, onerror=_insist)


def _make_each(directories: Sequence[ClaimDirectory]) -> list[OSError | None]:
    faults: list[OSError | None] = []
    for directory in directories:
        try:
            directory.make()
        except OSError as error:
            faults.append(error)
        else:
            faults.append(None)
    return faults


@contextmanager
def _blaming(folder: Path) -> Iterator[None]:
    """Turns what the operating system refuses into what the user can do about it."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL_ERRORS:
            raise DiskFull(
                f"The disk that holds {folder} is full: free some space or set another agent.data_dir."
            ) from error
        raise DataDirectoryUnusable(
            f"{folder} cannot be used as data directory ({error.strerror or error}): "
            "set agent.data_dir to a folder that this user may write to."
        ) from error


def _insist(function: Callable[..., Any], path: str, failure: Any) -> None:
    """A task may have taken its own folders' write permission away; what still stays is logged."""
    if isinstance(failure[1], FileNotFoundError):
        return
    if os.geteuid() == 0:
        # No permission is missing then, and a path may lead elsewhere by now if the task's user is at work.
        log.warning(
            "Something in a finished task's folder cannot be removed.", path=path, error=str(failure[1])
        )
        return
    try:
        parent = Path(path).parent
        parent.chmod(stat.S_IRWXU)
        if Path(path).is_dir() and not Path(path).is_symlink():
            Path(path).chmod(stat.S_IRWXU)
            shutil.rmtree(path, ignore_errors=True)
        else:
            function(path)
    except OSError as error:
        log.warning("Something in a finished task's folder cannot be removed.", path=path, error=str(error))
