"""A process that ends the tasks of a keeper that was killed.

If an agent is killed with its keeper and nothing starts the agent again, its tasks would run without a
lease and a timeout. The guard waits at the other end of a pipe until the keeper exits, and then does the
first step of the next keeper: it ends the processes. A keeper that exits normally dismisses its guard before.
The keeper replaces a guard that was killed.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from hetuflow_agent.keeper import wire
from hetuflow_agent.keeper.cgroups import NO_CGROUPS, Cgroups, cgroups_here
from hetuflow_agent.keeper.folder_lock import lock_folder
from hetuflow_agent.keeper.journal import Journal
from hetuflow_agent.keeper.leftovers import end_leftovers, leftovers_of
from hetuflow_agent.keeper.proc import boot_id

_PROGRAM: Final = Path(__file__).with_name("guard_main.py").resolve()
_PATIENCE: Final = 1.0
_LOOK_EVERY: Final = 0.01
_DONE: Final = b"done"
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
# A guard that lived this long is not failing at its start.
_WELL_AFTER: Final = 60.0


class Guard:
    """The keeper's side: starts the guard, and starts another one after its end."""

    def __init__(self, folder: Path, options: Sequence[str], cgroups: Cgroups) -> None:
        self._folder = folder
        self._options = list(options)
        self._cgroups = cgroups
        self._pipe: int | None = None
        self._started_at = -math.inf
        self._pause = _FIRST_PAUSE
        self.pid: int | None = None
        # When to start the next guard; None while one runs.
        self.start_at: float | None = -math.inf

    def start_if_due(self, now: float) -> None:
        """Start the guard if it is time; raises OSError, and sets the time of the next try then."""
        if self.start_at is None or now < self.start_at:
            return
        self._started_at = now
        try:
            # The keeper is still in the working directory of the last command.
            os.chdir("/")
            self.pid, self._pipe = _start(self._folder, self._options)
        except OSError:
            self._plan_next(now)
            raise
        self.start_at = None
        # The guard must not be in the control group that it may have to kill.
        self._cgroups.put_back(self.pid)

    def note_end(self, _status: int, now: float) -> None:
        """The guard was waited for while the keeper runs: it was killed."""
        self.pid = None
        self._close()
        self._plan_next(now)

    def dismiss(self) -> None:
        """The keeper exits normally, and no task is left."""
        if self._pipe is not None:
            with suppress(OSError):
                os.write(self._pipe, _DONE)
            self._close()

    def _plan_next(self, now: float) -> None:
        """At once after a long life, else after a pause that grows."""
        if now - self._started_at > _WELL_AFTER:
            self._pause = _FIRST_PAUSE
        self.start_at = max(now, self._started_at + self._pause)
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)

    def _close(self) -> None:
        if self._pipe is not None:
            with suppress(OSError):
                os.close(self._pipe)
            self._pipe = None


def _start(folder: Path, options: Sequence[str]) -> tuple[int, int]:
    """Start a guard in a separate session; return its pid and the keeper's end of the pipe."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(_PROGRAM), str(folder), *options],
            {},
            file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0), (os.POSIX_SPAWN_DUP2, 2, 1)],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )
    except OSError:
        os.close(writer)
        raise
    finally:
        os.close(reader)
    return pid, writer


def end_tasks(folder: Path, *, cgroups: bool) -> int:
    """The keeper was killed: end the processes that it ran, and return their number."""
    lock = _take_over(folder)
    if lock is None:
        return 0  # the next keeper has the lock and does the same
    orphaned = leftovers_of(Journal(folder / wire.JOURNAL_NAME).load().values(), boot_id())
    if orphaned:
        # While the guard holds the lock, no other keeper can be in the group.
        cgroups_here(folder, wanted=cgroups).kill_left()
    # The next keeper need not wait for processes that are slow to exit.
    os.close(lock)
    return end_leftovers(orphaned) if orphaned else 0


def _take_over(folder: Path) -> int | None:
    """The lock; an exiting keeper may hold it for a moment longer than its end of the pipe."""
    deadline = time.monotonic() + _PATIENCE
    while (lock := lock_folder(folder)) is None and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY)
    return lock


def main(arguments: list[str]) -> int:
    if os.read(0, len(_DONE)) == _DONE:
        return 0
    ended = end_tasks(Path(arguments[0]), cgroups=NO_CGROUPS not in arguments)
    if ended:
        print(f"The keeper was killed; its guard has ended {ended} processes.", flush=True)  # noqa: T201  goes to its log
    return 0
