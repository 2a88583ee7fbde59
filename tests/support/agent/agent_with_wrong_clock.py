"""The agent on a host whose wall clock is off by HOST_CLOCK_OFF seconds: `python agent_with_wrong_clock.py`.

Everything in the process that asks for the time of day is told that one: `time` and `datetime` are changed
before anything else is imported. Clocks that do not tell the time of day are as they are.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from pathlib import Path
from typing import Any

OFF = float(os.environ.pop("HOST_CLOCK_OFF"))
REAL = dt.datetime
SECONDS, NANOSECONDS = time.time, time.time_ns


class _Kind(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, REAL)


class ShiftedDatetime(REAL, metaclass=_Kind):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return REAL.now(tz) + dt.timedelta(seconds=OFF)


time.time = lambda: SECONDS() + OFF
time.time_ns = lambda: NANOSECONDS() + int(OFF * 1e9)
dt.datetime = ShiftedDatetime  # type: ignore[misc]  # a stand-in

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    from hetuflow_agent.cli import main

    sys.exit(main())
