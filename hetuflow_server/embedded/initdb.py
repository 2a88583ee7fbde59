"""Making a new cluster, so that a crash on the way leaves nothing that blocks the next start."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hetuflow_core.errors import DataDirectoryUnusable
from hetuflow_server.embedded.binaries import Binaries
from hetuflow_server.embedded.directory import (
    DISK_FULL_WORDS,
    INITDB_PREFIX,
    ClusterDirectory,
    disk_full,
    give_to_owner,
    hand_over,
)
from hetuflow_server.embedded.leftover_processes import POLL_INTERVAL
from hetuflow_server.embedded.spawning import spawn

ROLE = "hetuflow"
_BUILTIN_LOCALE_SINCE = 17


def initialise(
    directory: ClusterDirectory, binaries: Binaries, *, password: str, durable: bool
) -> Iterator[float]:
    """Work in a sibling folder and move the finished cluster into place."""
    remove_unfinished(directory)
    draft = Path(tempfile.mkdtemp(prefix=INITDB_PREFIX, dir=directory.root))
    try:
        _write_secret(draft / "password", password)
        hand_over(draft, directory.account)
        yield from _run_initdb(draft, directory, binaries, durable=durable)
        _keep_password(directory, password)
        (draft / "pgdata").rename(directory.pgdata)
        _make_durable(directory.root)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def remove_unfinished(directory: ClusterDirectory) -> None:
    for draft in directory.root.glob(f"{INITDB_PREFIX}*"):
        shutil.rmtree(draft, ignore_errors=True)


def _run_initdb(
    draft: Path, directory: ClusterDirectory, binaries: Binaries, *, durable: bool
) -> Iterator[float]:
    argv: list[str | Path] = [
        binaries.initdb,
        f"--pgdata={draft / 'pgdata'}",
        f"--username={ROLE}",
        f"--pwfile={draft / 'password'}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        *locale_options(binaries.major),
    ]
    if not durable:
        argv.append("--no-sync")
    with tempfile.TemporaryFile() as output:
        process = spawn(argv, account=directory.account, output=output, death_signal=signal.SIGTERM)
        try:
            while process.poll() is None:
                yield POLL_INTERVAL
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode != 0:
            output.seek(0)
            raise _failure(directory, output.read().decode(errors="replace"))


def locale_options(major: int) -> tuple[str, ...]:
    """The same order of text on every machine, by code point; since 17 with full Unicode case rules."""
    if major >= _BUILTIN_LOCALE_SINCE:
        return ("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")
    return ("--no-locale",)


def _failure(directory: ClusterDirectory, output: str) -> Exception:
    if DISK_FULL_WORDS in output:
        return disk_full(directory.root)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line or "FATAL:" in line]
    reason = (errors or lines or ["it said nothing"])[-1].removeprefix("initdb: error:").strip()
    return DataDirectoryUnusable(
        f"A new database could not be made in {directory.root} ({reason}): "
        "remove the cause or choose another data directory."
    )


def _keep_password(directory: ClusterDirectory, password: str) -> None:
    draft = directory.password_file.with_name("password.new")
    _write_secret(draft, password)
    draft.replace(directory.password_file)


def _make_durable(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_secret(path: Path, secret: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        give_to_owner(descriptor, path.parent)
        file.write(secret + "\n")
        file.flush()
        os.fsync(descriptor)
