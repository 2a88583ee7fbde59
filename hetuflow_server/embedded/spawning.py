"""Starting PostgreSQL's programs so that they cannot outlive this process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from hetuflow_core.errors import HostBlocked
from hetuflow_server.embedded.account import Account

_PR_SET_PDEATHSIG = 1
# Resolved before any fork: looking a symbol up takes locks that another thread may hold at that moment.
_prctl = ctypes.CDLL(None, use_errno=True).prctl

# Nothing of the caller's environment may steer the server: PGDATA, PGPORT, locale and time zone are ours.
# TZ also spares initdb its search through all time zone files.
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
_CALLERS_LIBRARIES = "LD_LIBRARY_PATH"


def environment() -> dict[str, str]:
    if libraries := os.environ.get(_CALLERS_LIBRARIES):
        return {**_ENVIRONMENT, _CALLERS_LIBRARIES: libraries}
    return dict(_ENVIRONMENT)


def spawn(
    argv: Sequence[str | Path], *, account: Account, output: IO[bytes], death_signal: signal.Signals | None
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own; `death_signal` reaches it when this process is gone.

    The kernel sends that signal when the spawning *thread* ends, so only the main thread may ask for it.
    """
    if death_signal is not None and threading.current_thread() is not threading.main_thread():
        raise RuntimeError("the embedded PostgreSQL must be started from the main thread")
    with warnings.catch_warnings():
        # Python 3.12+ warns of threads that hold locks across the fork; the hook takes none.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return subprocess.Popen(  # noqa: S603 (binaries found by us, arguments made by us)
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Folders that the lent account cannot enter are no place to start in.
                cwd="/",
                env=environment(),
                umask=0o077,
                user=account.uid if account.is_lent else None,
                group=account.gid if account.is_lent else None,
                extra_groups=[] if account.is_lent else None,
                start_new_session=True,
                preexec_fn=die_with_parent(death_signal) if death_signal else None,  # noqa: PLW1509 (see above)
            )
        except PermissionError as error:
            raise HostBlocked(
                f"{argv[0]} cannot be started as user {account.name} ({error.strerror}): "
                "run Hetuflow as an ordinary user that may run it."
            ) from error


def die_with_parent(death_signal: signal.Signals) -> Callable[[], None]:
    """Runs in the child after the change of user, which would clear the wish."""
    parent, wish = os.getpid(), int(death_signal)

    def ask() -> None:
        _prctl(_PR_SET_PDEATHSIG, wish, 0, 0, 0)
        if os.getppid() != parent:  # it died before the wish was in place
            os._exit(1)

    return ask
