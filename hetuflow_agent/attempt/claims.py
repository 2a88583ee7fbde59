"""All claims of this agent, from the assignment until the server has taken the result.

The heartbeat's thread reads them while the event loop changes them.
"""

from __future__ import annotations

import threading
from uuid import UUID

from hetuflow_core.messages import Held


class Claims:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        # With the lease in seconds, if it is known.
        self._held: dict[UUID, tuple[Held, float | None]] = {}

    def hold(self, instance_id: UUID, token: UUID, lease: float | None = None) -> None:
        """`lease` in seconds, if it is known."""
        with self._lock:
            if lease is None and token in self._held:
                lease = self._held[token][1]
            self._held[token] = (Held(instance_id, token), lease)

    def let_go(self, token: UUID) -> None:
        with self._lock:
            self._held.pop(token, None)

    def holds(self, token: UUID) -> bool:
        with self._lock:
            return token in self._held

    def snapshot(self) -> tuple[list[Held], float | None]:
        """All claims, and the shortest lease among them in seconds."""
        with self._lock:
            leases = (lease for _, lease in self._held.values() if lease is not None)
            return [held for held, _ in self._held.values()], min(leases, default=None)

    def __len__(self) -> int:
        with self._lock:
            return len(self._held)
