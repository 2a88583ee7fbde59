"""The jobs of the workload, as job files would have them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

from hetuflow_selftest.settings import RunSettings

Document = dict[str, Any]

OVERLAPS: Final = ("skip", "queue_one", "queue_all", "cancel_running")
# By hand: lasts a few seconds, so that there is always something to lose; and one that lasts until cancelled.
STEADY: Final = "steady"
ENDLESS: Final = "endless"
FLOW: Final = "flow"
ON_EVENT: Final = "on-event"
DAEMON: Final = "daemon"
EVENT: Final = "selftest.happened"
_FOREVER: Final = 1_000_000


class Documents:
    """`seed` decides intervals and how long things take: the same again with the same seed."""

    def __init__(self, settings: RunSettings, payload: Path, traces: Path, run_id: str) -> None:
        self._settings = settings
        self._payload = payload
        self._environment = {"SELFTEST_TRACES": str(traces), "SELFTEST_RUN": run_id}
        self._random = random.Random(settings.seed)  # noqa: S311  lots that can be drawn again

    def at_first(self) -> list[Document]:
        """Everything but newcomers."""
        ticking = max(1, self._settings.schedules - len(OVERLAPS))
        return [
            *(
                self.ticking(f"tick-{first // 10}", min(10, ticking - first), first)
                for first in range(0, ticking, 10)
            ),
            *(self._overlapping(policy) for policy in OVERLAPS),
            self._job(STEADY, lines=8, pause=0.4),
            self._job(ENDLESS, lines=_FOREVER, pause=0.5),
            self._daemon(),
            self._on_event(),
            self._flow(),
        ]

    def ticking(self, name: str, schedules: int, first: int = 0) -> Document:
        """Fires that may run beside each other, half of them by cron."""
        return self._job(
            name, lines=2, schedules=[self._schedule(f"s{n}", n) for n in range(first, first + schedules)]
        )

    def _job(self, name: str, *, lines: int, pause: float = 0, **keys: Any) -> Document:
        return {"kind": "job", "name": name, "run": self._run(lines, pause), **self._guarded(), **keys}

    def _run(self, lines: int, pause: float = 0) -> Document:
        command = ["/bin/sh", str(self._payload), str(lines), f"{pause:g}"]
        return {"command": command, "env": self._environment}

    def _guarded(self) -> Document:
        """What is not heard of is ended before its lease is."""
        return {"lease": f"{self._settings.lease:g}s", "kill_grace": "1s", "on_lost": "kill"}

    def _overlapping(self, policy: str) -> Document:
        """Fires that come sooner than the one before has ended; those that all wait have to catch up."""
        slow = max(2, self._settings.interval_bounds[1])
        lines = 2 if policy == "queue_all" else 6
        schedule = {"name": "often", "every": f"{slow}s", "overlap": policy, "misfire_grace": "1h"}
        return self._job(f"overlap-{policy.replace('_', '-')}", lines=lines, pause=0.4, schedules=[schedule])

    def _daemon(self) -> Document:
        daemon = {"replicas": 2, "backoff": {"delay": "1s", "max_delay": "2s"}}
        return self._job(DAEMON, lines=_FOREVER, pause=0.5, schedules=[{"name": "up", "daemon": daemon}])

    def _on_event(self) -> Document:
        wanted = {"name": EVENT, "params": {"key": "{{ payload.key }}"}}
        schedules = [{"name": "happened", "event": wanted}]
        return self._job(ON_EVENT, lines=1, params={"key": "none"}, schedules=schedules)

    def _flow(self) -> Document:
        nodes = [
            {"name": "first", "run": self._run(2), **self._guarded()},
            {
                "name": "each",
                "needs": ["first"],
                "map": [1, 2, 3],
                "run": self._run(2, 0.2),
                **self._guarded(),
            },
            {"name": "last", "needs": ["each"], "run": self._run(1), **self._guarded()},
        ]
        return {"kind": "job", "name": FLOW, "flow": {"nodes": nodes}}

    def _schedule(self, name: str, number: int) -> Document:
        every = self._random.randint(*self._settings.interval_bounds)
        timing = {"every": f"{every}s"} if number % 2 else {"cron": f"*/{every} * * * * *"}
        return {"name": name, **timing, "misfire_grace": "1h"}
