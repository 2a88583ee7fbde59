"""How busy the host is, told with heartbeats; and what tasks take of it while they run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from hetuflow_core.messages import HostUsage


class HostMeter:
    """Used by one thread: the processor's share is counted from one look to the next."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        psutil.cpu_percent(None)

    def read(self) -> HostUsage | None:
        """None where the system does not tell."""
        try:
            memory = psutil.virtual_memory()
            return HostUsage(
                cpu_percent=psutil.cpu_percent(None),
                load=round(psutil.getloadavg()[0], 2),
                memory_total=memory.total,
                memory_available=memory.available,
                disk_free=psutil.disk_usage(str(self._data_dir)).free,
            )
        except (OSError, psutil.Error):
            return None


def usage_of_family(pid: int) -> dict[str, Any] | None:
    """What a process and everything below it take now; None when it has gone. Blocks for a moment."""
    cpu_seconds, memory, processes = 0.0, 0, 0
    try:
        family = [(main := psutil.Process(pid)), *main.children(recursive=True)]
    except psutil.Error:
        return None
    for one in family:
        with suppress(psutil.Error):  # ended meanwhile
            times = one.cpu_times()
            memory += one.memory_info().rss
            # Of children that have ended too.
            cpu_seconds += times.user + times.system + times.children_user + times.children_system
            processes += 1
    return {"cpu_seconds": round(cpu_seconds, 2), "memory": memory, "processes": processes}
