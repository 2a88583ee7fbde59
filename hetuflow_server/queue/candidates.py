"""The search for work: which heads those who wait may take rows of, and locking rows there by fair quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence, Set as AbstractSet
from datetime import timedelta

from hetuflow_core.runtime.clock import Clock
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import claim_transitions
from hetuflow_server.queue.backlog import Backlog
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.fairness import Head
from hetuflow_server.queue.matching import Matcher
from hetuflow_server.queue.rows import Claimable
from hetuflow_server.queue.waiting_polls import WaitingPolls

_MOST_ROUNDS = 3
# How many heads of a namespace are looked at in one go, and how often those without room are passed over.
_MOST_HEADS = 64
_MOST_LOOKS = 8


class CandidateSearch:
    def __init__(
        self, clock: Clock, heads: Backlog, waiting: WaitingPolls, matcher: Matcher, capacity: Capacity
    ) -> None:
        self._clock = clock
        self._heads = heads
        self._waiting = waiting
        self._matcher = matcher
        self._capacity = capacity
        # Whether the last one passed over as many heads as it may: there may be work behind them.
        self.unfinished = False
        # Whether it looked as often as it may: there may be work where it did not look.
        self.exhausted = False

    async def lock(
        self, connection: Connection, want: int, prefetch: timedelta
    ) -> tuple[list[Claimable], list[Head]]:
        """Lock rows by fair quotas, and return the heads that were looked at.

        What is due goes first: what comes is taken only if nothing else that is due is there.
        """
        self.unfinished = self.exhausted = False
        rows, looked = await self._look(connection, want, prefetch)
        now = self._clock.now()
        coming = [row for row in rows if row.due_at > now]
        if not coming or len(rows) < want:
            return rows, list(looked)
        # Whatever else is due of their heads would have been found before them.
        more, others = await self._look(
            connection, len(coming), timedelta(0), rows, without={_head_of(row) for row in coming}
        )
        due = [row for row in rows if row.due_at <= now] + more
        return due + coming[: want - len(due)], list(looked | others)

    async def _look(
        self,
        connection: Connection,
        want: int,
        prefetch: timedelta,
        known: Sequence[Claimable] = (),
        without: AbstractSet[Head] = frozenset(),
    ) -> tuple[list[Claimable], dict[Head, None]]:
        """Lock rows that are not known yet by fair quotas, and return the heads that were looked at.

        Heads that gave less than asked are left out of the next rounds; once none is left, others follow:
        first those of which something may be due, then those of which all is known to come.
        """
        rows: list[Claimable] = []
        looked: dict[Head, None] = {}
        left: dict[Head, int] = {}
        for _ in range(_MOST_ROUNDS):
            if not left:
                passed = without | looked.keys()
                left = await self._open_heads(connection, want, passed, coming=False)
                if not left and prefetch:
                    left = await self._open_heads(connection, want, passed, coming=True)
            quotas = self._heads.shares.quotas(left, self._heads.weights, want - len(rows), at_most=left)
            if not quotas:
                break
            looked.update((head, None) for head, _ in quotas)
            self._heads.index.note_turns(head for head, _ in quotas)
            found = await claim_transitions.lock_claimable(
                connection,
                quotas,
                want=want - len(rows),
                prefetch=prefetch,
                without=[row.id for row in (*known, *rows)],
            )
            rows += found
            if len(rows) >= want:
                break
            taken = Counter(map(_head_of, found))
            drained = {head for head, quota in quotas if taken[head] < quota}
            left = {
                head: most - taken[head]
                for head, most in left.items()
                if head not in drained and most > taken[head]
            }
        else:
            self.exhausted = True
        return rows, looked

    async def _open_heads(
        self, connection: Connection, want: int, without: Collection[Head], *, coming: bool
    ) -> dict[Head, int]:
        """Return heads somebody here may take work of, and how much: the rest is not even looked at."""
        found: dict[Head, int] = {}
        most, now = min(want, _MOST_HEADS), self._clock.now()

        def takers(head: Head) -> int | None:
            if head in without or self._heads.comes(head, now) is not coming:
                return None
            return self._matcher.takers(head, self._waiting, want)

        for _ in range(_MOST_LOOKS):
            found = self._heads.index.pick(self._waiting.namespaces, most, takers)
            room = await self._capacity.room(connection, found)
            found = {head: min(rows, room.get(head, rows)) for head, rows in found.items()}
            full = [head for head, rows in found.items() if rows <= 0]
            if not full:
                break
            self._heads.index.note_full(full)
            most = _MOST_HEADS
        else:
            self.unfinished = True
        return {head: rows for head, rows in found.items() if rows > 0}


def _head_of(row: Claimable) -> Head:
    return Head(row.namespace_id, row.placement_id, row.priority, row.target_agent_id)
