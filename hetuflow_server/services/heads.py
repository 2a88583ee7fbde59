"""The heads of the queue as this server knows them: read once a second, and told of what is created here."""

from __future__ import annotations

from collections.abc import Collection

from hetuflow_core.fairness import Head, StrideShares
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.store import queue
from hetuflow_server.store.database import Connection


class KnownHeads:
    def __init__(self, clock: Clock, *, believed_seconds: float) -> None:
        self._clock = clock
        self._believed_seconds = believed_seconds
        self._heads: dict[Head, None] = {}
        # Those told of since the last read began.
        self._told: dict[Head, None] = {}
        self._known_until = 0.0
        self.weights: dict[int, int] = {}
        self.shares = StrideShares()

    def add(self, head: Head) -> None:
        """Note that there is work here, without asking the database."""
        self._heads[head] = None
        self._told[head] = None

    def forget(self) -> None:
        """Read them again before the next claim: work has come, and nobody said where."""
        self._known_until = 0.0

    async def read(self, connection: Connection) -> Collection[Head]:
        now = self._clock.monotonic()
        if now >= self._known_until:
            # Before the read: what is said while it is under way may have come too late for it.
            self._known_until = now + self._believed_seconds
            self._told = {}
            found = await queue.heads(connection)
            self.weights = await queue.weights(connection)
            self._heads = dict.fromkeys(found) | self._told
            self.shares.observe(self._heads)
        return self._heads
