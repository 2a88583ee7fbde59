"""A process that ends what a keeper that was killed has left.

Nobody else might: an agent that was killed with its keeper, on a host where nothing starts it again, would
leave tasks that no lease and no timeout holds. The guard waits at the other end of a pipe for nothing but the
keeper's end, and does then what the next keeper would do first. A keeper that ends in order says so before.
A guard that was killed itself is replaced.
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
# One that lived this long was well.
_WELL_AFTER: Final = 60.0


class Guard:
    """The keeper's side of it: there is always one, or it is known when there will be."""

    def __init__(self, folder: Path, options: Sequence[str], cgroups: Cgroups) -> None:
        self._folder = folder
        self._options = list(options)
        self._cgroups = cgroups
        self._pipe: int | None = None
        self._posted_at = -math.inf
        self._pause = _FIRST_PAUSE
        self.pid: int | None = None
        # When the next one is to be posted; None while there is one.
        self.post_at: float | None = -math.inf

    def tend(self, now: float) -> None:
        """Post one if it is time to; raises OSError, and is to be asked again later then."""
        if self.post_at is None or now < self.post_at:
            return
        self._posted_at = now
        try:
            # Where the last command was started is no place to stay.
            os.chdir("/")
            self.pid, self._pipe = _post(self._folder, self._options)
        except OSError:
            self._want_another(now)
            raise
        self.post_at = None
        # It must not be in the group it may have to kill.
        self._cgroups.put_back(self.pid)

    def note_end(self, now: float) -> None:
        """It was waited for, while we are still here: somebody killed it."""
        self.pid = None
        self._close()
        self._want_another(now)

    def dismiss(self) -> None:
        """We end in order, with nothing left to end."""
        if self._pipe is not None:
            with suppress(OSError):
                os.write(self._pipe, _DONE)
            self._close()

    def _want_another(self, now: float) -> None:
        """At once after one that was well; with growing pauses in between where none lives for long."""
        if now - self._posted_at > _WELL_AFTER:
            self._pause = _FIRST_PAUSE
        self.post_at = max(now, self._posted_at + self._pause)
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)

    def _close(self) -> None:
        if self._pipe is not None:
            with suppress(OSError):
                os.close(self._pipe)
            self._pipe = None


def _post(folder: Path, options: Sequence[str]) -> tuple[int, int]:
    """Start one, in a session of its own: its pid, and our end of the pipe it waits at."""
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


def stand_in(folder: Path, *, cgroups: bool) -> int:
    """The keeper has gone without a word: end what it ran; how many processes that were."""
    lock = _take_over(folder)
    if lock is None:
        return 0  # the next one is there already and sees to it
    orphaned = leftovers_of(Journal(folder / wire.JOURNAL_NAME).load().values(), boot_id())
    if orphaned:
        # While we hold the lock no other keeper can have entered the group.
        cgroups_here(folder, wanted=cgroups).kill_left()
    # The next keeper need not wait for those that take their time.
    os.close(lock)
    return end_leftovers(orphaned) if orphaned else 0


def _take_over(folder: Path) -> int | None:
    """The lock, which a keeper that is just ending may hold for a moment longer than its end of the pipe."""
    deadline = time.monotonic() + _PATIENCE
    while (lock := lock_folder(folder)) is None and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY)
    return lock


def main(arguments: list[str]) -> int:
    if os.read(0, len(_DONE)) == _DONE:
        return 0
    ended = stand_in(Path(arguments[0]), cgroups=NO_CGROUPS not in arguments)
    if ended:
        print(f"The keeper was killed; its guard has ended {ended} processes.", flush=True)  # noqa: T201  goes to its log
    return 0
