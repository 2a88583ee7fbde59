"""What this agent holds at the server: everything from an assignment until its end is acknowledged.

The heartbeat's thread reads it while the event loop changes it.
"""

from __future__ import annotations

import threading
from uuid import UUID

from hetuflow_core.messages import Held


class Claims:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[UUID, Held] = {}
        self._leases: dict[UUID, float] = {}

    def hold(self, instance_id: UUID, token: UUID, lease: float | None = None) -> None:
        """`lease` in seconds, where it is still known."""
        with self._lock:
            self._held[token] = Held(instance_id, token)
            if lease is not None:
                self._leases[token] = lease

    def let_go(self, token: UUID) -> None:
        with self._lock:
            self._held.pop(token, None)
            self._leases.pop(token, None)

    def holds(self, token: UUID) -> bool:
        with self._lock:
            return token in self._held

    def snapshot(self) -> tuple[list[Held], float | None]:
        """All claims, and the shortest lease among them in seconds."""
        with self._lock:
            return list(self._held.values()), min(self._leases.values(), default=None)

    def __len__(self) -> int:
        with self._lock:
            return len(self._held)
