"""The heads of the queue as this server knows them: read once a second, and told of what is created here."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from hetuflow_core.runtime.clock import Clock
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import store
from hetuflow_server.queue.backlog_index import BacklogIndex
from hetuflow_server.queue.fairness import Head, StrideShares


class Backlog:
    def __init__(self, clock: Clock, classes: PlacementClasses, *, believed_seconds: float) -> None:
        self._clock = clock
        self._classes = classes
        self._believed_seconds = believed_seconds
        # Those told of since the last read began.
        self._told: dict[Head, None] = {}
        # Those told of since the round under way began.
        self._fresh: set[Head] = set()
        # When the first of each was due at the last read, unless something was told of since.
        self._first_due: dict[Head, datetime] = {}
        # Classes that were named and not read yet.
        self._unread: set[int] = set()
        self._known_until = 0.0
        self.index = BacklogIndex()
        self.weights: dict[int, int] = {}
        self.shares = StrideShares()

    def add(self, head: Head) -> None:
        """Note that there is work here, without asking the database."""
        self.index.add(head)
        self._fresh.add(head)
        self._told[head] = None
        self._first_due.pop(head, None)
        self._unread.add(head.placement_id)

    def begin_round(self) -> None:
        """From now on the database may not show what is told of."""
        self._fresh = set()

    def note_empty(self, heads: Iterable[Head]) -> None:
        """Nothing waited in these when the round looked: they are not looked at until something comes."""
        self.index.remove([head for head in heads if head not in self._fresh])

    def forget(self) -> None:
        """Read them again before the next claim: work has come, and nobody said where."""
        self._known_until = 0.0

    def comes(self, head: Head, now: datetime) -> bool:
        """Whether all that waits here is known to be due only later."""
        due_at = self._first_due.get(head)
        return due_at is not None and due_at > now

    async def read(self, connection: Connection, horizon: datetime) -> None:
        """Bring them up to date, and know their classes; what is due beyond the horizon is left alone."""
        now = self._clock.monotonic()
        if now >= self._known_until:
            # Before the read: what is said while it is under way may have come too late for it.
            self._known_until = now + self._believed_seconds
            self._told = {}
            try:
                found = await store.heads(connection)
                self.weights = await store.weights(connection)
            except BaseException:
                self.forget()
                raise
            self.index.replace([*found, *self._told])
            # What was told of meanwhile may be due before what was found.
            self._first_due = {head: due for head, due in found.items() if head not in self._told}
            self.index.lay_down(self._first_due, horizon)
            self.shares.observe(self.index)
            self._unread.update(head.placement_id for head in found)
        self.index.rouse(horizon)
        if self._unread:
            unread = set(self._unread)
            await self._classes.learn(connection, unread)
            self._unread -= unread
