"""The keeper's clocks; the core's cannot be imported here."""

from __future__ import annotations

import time
from typing import Protocol


class KeeperClock(Protocol):
    def boottime(self) -> float: ...

    def wall(self) -> float: ...


class HostClock:
    def boottime(self) -> float:
        """Seconds that also count while the machine sleeps: what deadlines and leases go by."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        """Seconds since the epoch: for whoever reads them after a reboot."""
        return time.time()
