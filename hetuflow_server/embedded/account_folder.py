"""A place that a lent account can reach, for when root keeps Hetuflow where nobody else may look.

Folders of the user are never opened up. What PostgreSQL must reach moves here instead: a copy of the
programs, and the cluster itself, whose name is remembered in the data directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hetuflow_core.errors import DataDirectoryUnusable
from hetuflow_server.embedded.account import ROOT, Account
from hetuflow_server.embedded.binaries import Binaries
from hetuflow_server.embedded.spawning import environment

SHELTER = Path("/var/lib/hetuflow")

_LOCATION_FILE = "location"
_CLUSTER_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}")
_UNFINISHED = ".copy-"
_TRIAL_TIMEOUT = 10.0


def make_folder(folder: Path) -> None:
    """Create what is missing; root's new folders are open to lent accounts whatever the umask says."""
    missing = [step for step in (folder, *folder.parents) if not step.exists()]
    for step in reversed(missing):
        step.mkdir(mode=0o755, exist_ok=True)
        if os.geteuid() == ROOT:
            step.chmod(0o755)


def sheltered_cluster(data_dir: Path, shelter: Path) -> Path | None:
    """Where the cluster of this data directory was put, if it lives in the shelter."""
    try:
        name = (data_dir / _LOCATION_FILE).read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    # A name, not a path: whoever may write to the data directory must not send root elsewhere.
    if not _CLUSTER_NAME.fullmatch(name):
        raise DataDirectoryUnusable(
            f"{data_dir / _LOCATION_FILE} does not name a cluster: restore that file or move {data_dir} away."
        )
    return shelter / "clusters" / name


def assign_shelter(data_dir: Path, shelter: Path) -> Path:
    """Choose and remember a place; of two processes that try at once both get the same one.

    The random part gives a data directory that was deleted and made again a cluster of its own.
    """
    path_hash = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    draft = data_dir / f"{_LOCATION_FILE}-{os.getpid()}"
    draft.write_text(f"{path_hash}-{secrets.token_hex(4)}\n")
    try:
        os.link(draft, data_dir / _LOCATION_FILE)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    cluster = sheltered_cluster(data_dir, shelter)
    if cluster is None:
        raise DataDirectoryUnusable(f"{data_dir} changed while it was being prepared: try again.")
    return cluster


def reachable_binaries(binaries: Binaries, account: Account, shelter: Path) -> Binaries:
    """The same binaries, copied out once if the account cannot run them where they are."""
    if not account.is_lent or _can_run(binaries.initdb, account):
        return binaries
    status = binaries.postgres.stat()
    origin = f"{binaries.postgres}:{status.st_size}:{status.st_mtime_ns}"
    name = f"{binaries.version}-{hashlib.sha256(os.fsencode(origin)).hexdigest()[:16]}"
    folder = shelter / "binaries"
    make_folder(folder)
    with _only_one(folder / "lock"):
        if not (folder / name).exists():
            _copy_install(binaries.bin_dir, folder, name)
    return Binaries(folder / name / "package" / "install" / "bin", binaries.major, binaries.version)


def _copy_install(bin_dir: Path, folder: Path, name: str) -> None:
    """Wheels keep shared libraries in `<package>.libs`, found through a path relative to the programs."""
    for unfinished in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    install, package = bin_dir.parent, bin_dir.parent.parent
    draft = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder))
    try:
        # The headers and static libraries are half of the size and of no use here.
        without = shutil.ignore_patterns("include", "*.a", "pkgconfig")
        shutil.copytree(install, draft / "package" / "install", ignore=without, symlinks=True)
        libraries = package.parent / f"{package.name}.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, draft / libraries.name, symlinks=True)
        _open_for_reading(draft)
        draft.rename(folder / name)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _open_for_reading(tree: Path) -> None:
    for folder, _, files in os.walk(tree):
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 (programs for another account to run)
        for file in (Path(folder, name) for name in files):
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)


def _can_run(program: Path, account: Account) -> bool:
    """Asked by doing it: parents, shared libraries and mount options all have their say."""
    try:
        answer = subprocess.run(  # noqa: S603 (a PostgreSQL program found by us)
            [program, "--version"],
            check=False,
            capture_output=True,
            cwd="/",
            env=environment(),
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            timeout=_TRIAL_TIMEOUT,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.returncode == 0


@contextmanager
def _only_one(lock_file: Path) -> Iterator[None]:
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
