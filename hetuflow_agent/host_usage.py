"""How busy the host is, told with heartbeats."""

from __future__ import annotations

from pathlib import Path

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
