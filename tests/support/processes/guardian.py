"""Ends what an interrupted run of tests would leave behind.

Who runs tests may be killed at any moment: pytest-xdist does that to workers that take long over their last
words after Ctrl-C. So each has a process beside it that waits for its end, and ends then whatever was started
with its mark in the environment, and every keeper of a folder of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psutil

# Not one of ours, so that it is in the environment of everything that tests start.
_MARK = "TESTED_BY"
_PATIENCE_SECONDS = 15.0
_LOOK_EVERY = 0.1


def guard(folder: Path) -> subprocess.Popen[bytes]:
    """Have everything ended when this process is gone; `folder`: where all its data folders are."""
    mark = uuid4().hex
    environment = {name: value for name, value in os.environ.items() if name != _MARK}
    guardian = subprocess.Popen(
        [sys.executable, "-m", "tests.support.processes.guardian", mark, str(folder)],
        stdin=subprocess.PIPE,
        env=environment,
        cwd=Path(__file__).parents[3],
        start_new_session=True,
    )
    os.environ[_MARK] = mark
    return guardian


def dismiss(guardian: subprocess.Popen[bytes]) -> None:
    """The end has come in order."""
    guardian.kill()
    guardian.communicate()


def left_behind(mark: str, folder: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["pid", "status"]):
        with suppress(psutil.Error, OSError):
            if process.info["status"] != psutil.STATUS_ZOMBIE and _is_ours(process, mark, folder):
                found.append(process)
    return found


def _is_ours(process: psutil.Process, mark: str, folder: str) -> bool:
    if process.environ().get(_MARK) == mark:
        return True
    line = process.cmdline()
    of_a_keeper = any("hetuflow_agent/keeper/" in word for word in line)
    return of_a_keeper and any(word.startswith(folder) for word in line)


def end_all(mark: str, folder: str) -> None:
    """TERM, so that keepers end what they run; then KILL."""
    deadline, told = time.monotonic() + _PATIENCE_SECONDS, set[int]()
    while found := left_behind(mark, folder):
        for process in found:
            with suppress(psutil.Error):
                if time.monotonic() > deadline:
                    process.kill()
                elif process.pid not in told:
                    told.add(process.pid)
                    process.terminate()
        time.sleep(_LOOK_EVERY)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_all(sys.argv[1], sys.argv[2])
