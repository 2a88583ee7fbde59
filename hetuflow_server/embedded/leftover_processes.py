"""Server processes of a cluster whose holder is gone: a server still shutting down, or orphaned backends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from hetuflow_core.errors import DataDirectoryUnusable

POLL_INTERVAL = 0.01
# The first wait is for those that already heard that their parent died. SIGINT is a fast shutdown for a
# server and ends the statement of a backend, SIGQUIT and SIGKILL leave a recovery to the next start.
_ESCALATION = ((None, 3.0), (signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))


def server_processes(pgdata: Path) -> list[int]:
    """Living server processes that work in this folder; a zombie has no folder any more."""
    try:
        home = pgdata.stat()
    except FileNotFoundError:
        return []
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and _serves(name, home)]  # noqa: PTH208 (names)


def end_survivors(pgdata: Path) -> Iterator[float]:
    """Only for the holder of the directory's lock: nobody else can be using these processes."""
    survivors = server_processes(pgdata)
    for wish, patience in _ESCALATION:
        if wish is not None:
            for pid in survivors:
                _send(pid, wish, pgdata)
        deadline = time.monotonic() + patience
        while survivors and time.monotonic() < deadline:
            yield POLL_INTERVAL
            survivors = server_processes(pgdata)
        if not survivors:
            return
    raise DataDirectoryUnusable(
        f"{pgdata.parent} is still in use by PostgreSQL process {survivors[0]}, which does not end: "
        "end it and try again."
    )


def clear_stale_pid_file(pgdata: Path) -> None:
    """PostgreSQL refuses to start while a process has the pid of the last server.

    With no server left in this folder that process is a zombie or a stranger that got the number.
    """
    pid_file = pgdata / "postmaster.pid"
    try:
        pid = pid_file.read_text().splitlines()[0].strip()
    except (FileNotFoundError, IndexError):
        pid = ""
    if not pid.isdecimal() or Path("/proc", pid).exists():
        pid_file.unlink(missing_ok=True)


def _serves(pid: str, home: os.stat_result) -> bool:
    try:
        working_in = os.stat(f"/proc/{pid}/cwd")  # noqa: PTH116 (through the link, which may dangle)
        return os.path.samestat(working_in, home) and Path("/proc", pid, "comm").read_text() == "postgres\n"
    except OSError:  # gone meanwhile, a zombie, or another user's
        return False


def _send(pid: int, wish: signal.Signals, pgdata: Path) -> None:
    try:
        os.kill(pid, wish)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise DataDirectoryUnusable(
            f"{pgdata.parent} is still in use by PostgreSQL process {pid} of another user: stop it first."
        ) from error
