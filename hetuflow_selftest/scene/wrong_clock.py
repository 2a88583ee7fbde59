"""`python wrong_clock.py FILE MODULE …`: a program of ours on a host whose wall clock is off.

By as many seconds as the file says, at any time: clocks step while programs run. Clocks that do not tell the
time of day are as they are.
"""

from __future__ import annotations

import os
import runpy
import sys
from datetime import UTC, datetime, timedelta

from hetuflow_core.runtime.clock import SystemClock

_LONGEST = 32


def step(file: int) -> None:
    """Replace the one place where the wall clock is read."""

    def now(self: SystemClock) -> datetime:  # noqa: ARG001  a method
        return datetime.now(UTC) + timedelta(seconds=float(os.pread(file, _LONGEST, 0)))

    SystemClock.now = now  # type: ignore[method-assign]  # a stand-in


if __name__ == "__main__":
    step(os.open(sys.argv[1], os.O_RDONLY))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
