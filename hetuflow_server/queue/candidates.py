"""Candidates: the pending instances that the waiting polls may claim.

`Backlog` is what this server knows about the backlog. `CandidateSearch` locks instances of those backlog
entries that the waiting polls can take, by the fair shares of the namespaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hetuflow_core.runtime.clock import Clock
from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.placement.suitability import Suitability
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import claim_transitions, store
from hetuflow_server.queue.backlog_index import BacklogIndex
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.fairness import StrideShares
from hetuflow_server.queue.matching import Matcher
from hetuflow_server.queue.rows import Claimable, NewInstance
from hetuflow_server.queue.waiting_polls import WaitingPoll, WaitingPolls

# How many statements of one search lock instances.
_MOST_PASSES = 3
# How many entries of a namespace are picked at once, and how often entries without room are replaced by
# others.
_MOST_ENTRIES = 64
_MOST_PICKS = 8


class Backlog:
    """The backlog as this server knows it: read about once a second, plus the entries that hints name."""

    def __init__(self, clock: Clock, classes: PlacementClasses, *, valid_seconds: float) -> None:
        self._clock = clock
        self._classes = classes
        self._valid_seconds = valid_seconds
        self._valid_until = 0.0
        # Entries added since the last read began, and since the current round began.
        self._added_since_read: dict[BacklogEntry, None] = {}
        self._added_in_round: set[BacklogEntry] = set()
        # {entry: when its first instance was due at the last read}, without entries that were added since.
        self._first_due: dict[BacklogEntry, datetime] = {}
        # Placement classes that entries name and that were not read yet.
        self._unknown_classes: set[int] = set()
        self.index = BacklogIndex()
        self.weights: dict[int, int] = {}
        self.shares = StrideShares()

    def add(self, entry: BacklogEntry) -> None:
        """Add an entry with a new instance, without a query."""
        self.index.add(entry)
        self._added_in_round.add(entry)
        self._added_since_read[entry] = None
        self._first_due.pop(entry, None)
        self._unknown_classes.add(entry.placement_id)

    def invalidate(self) -> None:
        """Read the backlog again before the next claim: it has a new instance, and the entry is not known."""
        self._valid_until = 0.0

    def begin_round(self) -> None:
        """From now on the round's transaction may not see the instances of entries that are added."""
        self._added_in_round = set()

    def note_empty(self, entries: Iterable[BacklogEntry]) -> None:
        """Remove entries without a pending instance, unless one was added that the round could not see."""
        self.index.remove([entry for entry in entries if entry not in self._added_in_round])

    def is_future(self, entry: BacklogEntry, now: datetime) -> bool:
        """Return whether all instances of an entry are known to be due later."""
        due_at = self._first_due.get(entry)
        return due_at is not None and due_at > now

    async def refresh(self, connection: Connection, horizon: datetime) -> None:
        """Bring the backlog and its placement classes up to date; postpone entries due after the horizon."""
        if self._clock.monotonic() >= self._valid_until:
            await self._read(connection, horizon)
        self.index.resume(horizon)
        if self._unknown_classes:
            classes = set(self._unknown_classes)
            await self._classes.learn(connection, classes)
            self._unknown_classes -= classes

    async def _read(self, connection: Connection, horizon: datetime) -> None:
        # Set before the query: a hint that comes meanwhile may be too late for it, and invalidates the
        # result.
        self._valid_until = self._clock.monotonic() + self._valid_seconds
        self._added_since_read = {}
        try:
            first_due = await store.backlog(connection)
            self.weights = await store.weights(connection)
        except BaseException:
            self.invalidate()
            raise
        self.index.replace([*first_due, *self._added_since_read])
        # An instance that was added meanwhile may be due before those of the query.
        self._first_due = {
            entry: due_at for entry, due_at in first_due.items() if entry not in self._added_since_read
        }
        self.index.postpone(self._first_due, horizon)
        self.shares.observe(self.index)
        self._unknown_classes.update(entry.placement_id for entry in first_due)


@dataclass(slots=True)
class Candidates:
    """The result of one search."""

    # Instances that the transaction has locked.
    rows: list[Claimable] = field(default_factory=list)
    # The entries that were searched.
    entries: dict[BacklogEntry, None] = field(default_factory=dict)
    # Another search may find more, because more entries were without room under a limit than one search
    # skips.
    unfinished: bool = False
    # The search used all its passes, so entries may be left that were not searched.
    exhausted: bool = False


class CandidateSearch:
    def __init__(
        self,
        clock: Clock,
        backlog: Backlog,
        waiting_polls: WaitingPolls,
        suitability: Suitability,
        matcher: Matcher,
        capacity: Capacity,
    ) -> None:
        self._clock = clock
        self._backlog = backlog
        self._waiting_polls = waiting_polls
        self._suitability = suitability
        self._matcher = matcher
        self._capacity = capacity

    async def prepare(self, connection: Connection, new_polls: Iterable[WaitingPoll]) -> None:
        """Refresh the backlog, and restore entries that no earlier poll suited and a new poll does."""
        await self._backlog.refresh(connection, self._clock.now() + self._waiting_polls.prefetch)
        index = self._backlog.index
        for poll in new_polls:
            if poll.free > 0:
                index.restore_bound(poll.agent_id)
                for namespace_id in poll.served:
                    if unsuited := index.unsuited_classes(namespace_id):
                        ever_unsuited = index.ever_unsuited_classes(namespace_id)
                        fitting = self._suitability.fitting(unsuited, ever_unsuited, poll.facts)
                        index.restore_classes(namespace_id, fitting)

    async def lock(self, connection: Connection, limit: int, prefetch: timedelta) -> Candidates:
        """Lock up to `limit` instances by fair quotas.

        Due instances come first: a future instance within the prefetch is taken only if no other one is due.
        """
        found = Candidates()
        rows = await self._lock(connection, found, limit, prefetch)
        now = self._clock.now()
        future = [row for row in rows if row.due_at > now]
        if future and len(rows) >= limit:
            # The entries of these future instances have no further due instance: it would have been locked
            # first.
            skip = {_entry_of(row) for row in future}
            more = await self._lock(connection, found, len(future), timedelta(0), rows, skip)
            due = [row for row in rows if row.due_at <= now] + more
            rows = due + future[: limit - len(due)]
        found.rows = rows
        return found

    async def next_due(self, connection: Connection, found: Candidates) -> datetime | None:
        """Return when the next instance is due; remove the entries that the search found empty."""
        postponed = self._backlog.index.next_due()
        if found.rows or not found.entries:
            return postponed
        searched = await store.next_due(connection, found.entries)
        if searched is None:
            self._backlog.note_empty(found.entries)
            found.unfinished = found.unfinished or found.exhausted
        return min((due_at for due_at in (postponed, searched) if due_at is not None), default=None)

    async def _lock(
        self,
        connection: Connection,
        found: Candidates,
        limit: int,
        prefetch: timedelta,
        locked: Sequence[Claimable] = (),
        skip: AbstractSet[BacklogEntry] = frozenset(),
    ) -> list[Claimable]:
        """Lock up to `limit` instances in addition to the `locked` ones.

        An entry that had fewer instances than its quota is left out of the next pass. When no entry is left,
        other entries follow: first the ones that may have due instances, then the ones that are due later.
        """
        rows: list[Claimable] = []
        searched: dict[BacklogEntry, None] = {}
        open_entries: dict[BacklogEntry, int] = {}
        for _ in range(_MOST_PASSES):
            if not open_entries:
                done = skip | searched.keys()
                open_entries = await self._pick(connection, found, limit, done, future=False)
                if not open_entries and prefetch:
                    open_entries = await self._pick(connection, found, limit, done, future=True)
            shares, weights = self._backlog.shares, self._backlog.weights
            quotas = shares.quotas(open_entries, weights, limit - len(rows), at_most=open_entries)
            if not quotas:
                break
            searched.update((entry, None) for entry, _ in quotas)
            self._backlog.index.note_served(entry for entry, _ in quotas)
            new = await claim_transitions.lock_claimable(
                connection,
                quotas,
                want=limit - len(rows),
                prefetch=prefetch,
                without=[row.id for row in (*locked, *rows)],
            )
            rows += new
            if len(rows) >= limit:
                break
            counts = Counter(map(_entry_of, new))
            drained = {entry for entry, quota in quotas if counts[entry] < quota}
            open_entries = {
                entry: most - counts[entry]
                for entry, most in open_entries.items()
                if entry not in drained and most > counts[entry]
            }
        else:
            found.exhausted = True
        found.entries |= searched
        return rows

    async def _pick(
        self,
        connection: Connection,
        found: Candidates,
        limit: int,
        skip: Collection[BacklogEntry],
        *,
        future: bool,
    ) -> dict[BacklogEntry, int]:
        """Return entries that the waiting polls can take, and how many instances of each."""
        index, now = self._backlog.index, self._clock.now()

        def demand(entry: BacklogEntry) -> int | None:
            if entry in skip or self._backlog.is_future(entry, now) is not future:
                return None
            return self._matcher.demand(entry, limit)

        picked: dict[BacklogEntry, int] = {}
        most = min(limit, _MOST_ENTRIES)
        for _ in range(_MOST_PICKS):
            picked = index.pick(self._waiting_polls.namespaces, most, demand)
            room = await self._capacity.room(connection, picked)
            picked = {entry: min(count, room.get(entry, count)) for entry, count in picked.items()}
            full = [entry for entry, count in picked.items() if count <= 0]
            if not full:
                break
            index.note_full(full)
            most = _MOST_ENTRIES
        else:
            found.unfinished = True
        return {entry: count for entry, count in picked.items() if count > 0}


def _entry_of(row: Claimable) -> BacklogEntry:
    return BacklogEntry(row.namespace_id, row.placement_id, row.priority, row.target_agent_id)


def claimable(new: NewInstance) -> Claimable | None:
    """Return a new instance as a claim would lock it; None if no agent may claim it yet."""
    if new.held_reason is not None or new.lease_ms is None:
        return None
    return Claimable(
        new.id,
        new.task_id,
        new.namespace_id,
        new.placement_id,
        new.priority,
        new.due_at,
        new.concurrency_key,
        new.target_agent_id,
        new.job_id,
        new.job_version,
        new.attempt,
        new.fire_at,
        new.lease_ms,
        new.slot,
    )
