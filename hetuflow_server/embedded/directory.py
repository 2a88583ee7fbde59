"""The folder of one embedded cluster: its parts, whose it is, and that only one process uses it.

DIR/lock          held with flock by the process that runs the cluster; holds its pid
DIR/pgdata/       what PostgreSQL calls its data directory; present only when completely initialised
DIR/password      of the role `hetuflow`, mode 0600
DIR/server.log    what PostgreSQL says
DIR/location      only when DIR is out of reach for the account: the name of the cluster in the shelter
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hetuflow_core.errors import DataDirectoryUnusable, DiskFull
from hetuflow_server.embedded.account import ROOT, Account, choose_account
from hetuflow_server.embedded.account_folder import assign_shelter, make_folder, sheltered_cluster
from hetuflow_server.embedded.binaries import Binaries, binaries_of

INITDB_PREFIX = "initdb-"
DISK_FULL_WORDS = "No space left on device"
# A fresh volume is not empty either.
_OWN_ENTRIES = {
    "admitted.conf",
    "lock",
    "password",
    "password.new",
    "location",
    "server.log",
    "server.log.1",
    "lost+found",
}
_OWN_PREFIXES = (INITDB_PREFIX, "location-")
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class ClusterDirectory:
    root: Path
    account: Account

    @property
    def pgdata(self) -> Path:
        return self.root / "pgdata"

    @property
    def password_file(self) -> Path:
        return self.root / "password"

    @property
    def admission_file(self) -> Path:
        """Who may connect, where that is not the loopback address alone."""
        return self.root / "admitted.conf"

    @property
    def log_file(self) -> Path:
        return self.root / "server.log"

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"


@contextmanager
def blaming(folder: Path) -> Iterator[None]:
    """Turns what the operating system refuses into what the user can do about it."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise disk_full(folder) from error
        raise DataDirectoryUnusable(
            f"{folder} cannot be used as data directory ({error.strerror or error}): "
            "choose a folder that this user may write to."
        ) from error


def disk_full(folder: Path) -> DiskFull:
    return DiskFull(
        f"The disk that holds {folder} is full: free some space or choose another data directory."
    )


def open_directory(data_dir: Path, shelter: Path) -> ClusterDirectory:
    """Find or make the folder, in the shelter if the account could not reach it."""
    data_dir = data_dir.resolve()
    if data_dir.exists() and not data_dir.is_dir():
        raise DataDirectoryUnusable(f"{data_dir} is a file: name a folder as data directory.")
    _refuse_foreign(data_dir)
    sheltered = sheltered_cluster(data_dir, shelter)
    root = sheltered or data_dir
    account = choose_account(_owner(root / "pgdata"))
    make_folder(data_dir)
    if sheltered is None and not account.may_enter(data_dir):
        if (data_dir / "pgdata").exists():
            raise DataDirectoryUnusable(
                f"User {account.name} cannot reach its data directory {data_dir} any more: "
                "let it enter the folders above, or move the data directory to where it can."
            )
        root = assign_shelter(data_dir, shelter)
    make_folder(root)
    if not account.may_enter(root):
        raise DataDirectoryUnusable(
            f"User {account.name} can reach neither {data_dir} nor {root}: "
            "choose a data directory that it can enter."
        )
    return ClusterDirectory(root, account)


def lock_directory(directory: ClusterDirectory) -> int:
    """A descriptor that holds the lock until it is closed; the kernel closes it for a killed process."""
    while True:
        lock = os.open(directory.lock_file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 32).decode().strip()
            os.close(lock)
            raise DataDirectoryUnusable(
                f"{directory.root} is in use by process {holder or '(unknown)'}: "
                "stop that one or choose another data directory."
            ) from None
        if _is_file_at(lock, directory.lock_file):
            break
        os.close(lock)  # whoever removed the folder held the lock until just now
    give_to_owner(lock, directory.root)
    os.ftruncate(lock, 0)
    os.write(lock, b"%d\n" % os.getpid())
    return lock


def check_version(directory: ClusterDirectory, binaries: Binaries) -> None:
    try:
        made_by = (directory.pgdata / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        raise DataDirectoryUnusable(
            f"The database in {directory.root} is damaged (it has no PG_VERSION): "
            "restore it, or move the folder away to start with an empty database."
        ) from None
    if made_by == str(binaries.major):
        return
    matching = binaries_of(int(made_by)) if made_by.isdecimal() else None
    where = f" in {matching.bin_dir}" if matching else ""
    raise DataDirectoryUnusable(
        f"{directory.root} was made by PostgreSQL {made_by}, and the one here is {binaries.version}: "
        f"use the binaries of PostgreSQL {made_by}{where}, "
        "or move the folder away to start with an empty database."
    )


def take_ownership(directory: ClusterDirectory) -> None:
    """PostgreSQL insists on owning a closed folder; a restored copy may have neither owner nor mode right."""
    pgdata = directory.pgdata
    status = pgdata.stat()
    if status.st_uid != directory.account.uid:
        if os.geteuid() != ROOT:
            raise DataDirectoryUnusable(
                f"{pgdata} belongs to another user (id {status.st_uid}): "
                "run as that user or choose another data directory."
            )
        hand_over(pgdata, directory.account)
    if status.st_mode & 0o077:
        pgdata.chmod(0o700)


def delete_cluster(directory: ClusterDirectory, data_dir: Path) -> None:
    """Only what Hetuflow put there; the lock goes last, so that nobody starts in between."""
    data_dir = data_dir.resolve()
    shutil.rmtree(directory.pgdata, ignore_errors=True)
    own = [
        entry for folder in (directory.root, data_dir) for entry in folder.iterdir() if _is_own(entry.name)
    ]
    for entry in sorted(set(own), key=lambda entry: entry == directory.lock_file):
        if entry.is_dir() and entry.name.startswith(INITDB_PREFIX):
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.is_file():
            entry.unlink()
    for folder in {directory.root, data_dir}:
        if not any(folder.iterdir()):
            folder.rmdir()


def hand_over(tree: Path, account: Account) -> None:
    if not account.is_lent:
        return
    os.chown(tree, account.uid, account.gid)
    for folder, folders, files in os.walk(tree):
        for name in (*folders, *files):
            os.chown(Path(folder, name), account.uid, account.gid, follow_symlinks=False)


def give_to_owner(descriptor: int, folder: Path) -> None:
    """What root writes into the folder of an ordinary user must stay usable for that user."""
    if os.geteuid() == ROOT:
        status = folder.stat()
        os.fchown(descriptor, status.st_uid, status.st_gid)


def _refuse_foreign(data_dir: Path) -> None:
    entries = {entry.name for entry in data_dir.iterdir()} if data_dir.is_dir() else set()
    if "pgdata" in entries or "location" in entries:
        return
    if "PG_VERSION" in entries:
        raise DataDirectoryUnusable(
            f"{data_dir} is a PostgreSQL data directory that Hetuflow did not make: "
            "start that PostgreSQL yourself and give Hetuflow its URL, or choose another data directory."
        )
    if foreign := sorted(name for name in entries if not _is_own(name)):
        raise DataDirectoryUnusable(
            f"{data_dir} is not empty and holds no database (it has {foreign[0]}): "
            "choose an empty or a new folder."
        )


def _is_own(name: str) -> bool:
    return name in _OWN_ENTRIES or name.startswith(_OWN_PREFIXES)


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except FileNotFoundError:
        return None


def _is_file_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
