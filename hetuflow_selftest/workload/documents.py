"""The jobs of the workload, as job files would have them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from hetuflow_selftest.settings import RunSettings

Document = dict[str, Any]

OVERLAPS = ("skip", "queue_one", "queue_all", "cancel_running")


class Documents:
    """`seed` decides intervals and how long things take: the same again with the same seed."""

    def __init__(self, settings: RunSettings, payload: Path, traces: Path, run_id: str) -> None:
        self._settings = settings
        self._payload = payload
        self._environment = {"SELFTEST_TRACES": str(traces), "SELFTEST_RUN": run_id}
        self._random = random.Random(settings.seed)  # noqa: S311  lots that can be drawn again

    def job(self, name: str, *, lines: int, pause: float = 0, **keys: Any) -> Document:
        return {
            "kind": "job",
            "name": name,
            "run": {
                "command": ["/bin/sh", str(self._payload), str(lines), f"{pause:g}"],
                "env": self._environment,
            },
            "lease": f"{self._settings.lease:g}s",
            "kill_grace": "1s",
            **keys,
        }

    def ticking(self, name: str, schedules: int, first: int = 0) -> Document:
        """Fires that may run beside each other, half of them by cron."""
        return self.job(
            name, lines=2, schedules=[self._schedule(f"s{n}", n) for n in range(first, first + schedules)]
        )

    def overlapping(self, policy: str) -> Document:
        """Fires that come sooner than the one before has ended."""
        slow = self._settings.intervals[1]
        schedule = {"name": "often", "every": f"{slow}s", "overlap": policy, "misfire_grace": "1h"}
        return self.job(f"overlap-{policy.replace('_', '-')}", lines=6, pause=0.4, schedules=[schedule])

    def _schedule(self, name: str, number: int) -> Document:
        every = self._random.randint(*self._settings.intervals)
        timing = {"every": f"{every}s"} if number % 2 else {"cron": f"*/{every} * * * * *"}
        return {"name": name, **timing, "misfire_grace": "1h"}
