"""An index of the backlog, from which a claim picks a few entries without iterating over all of them.

Entries that suit none of the waiting polls are set apart and cost nothing until a poll arrives that suits
them. Entries without a due instance are postponed until one is due. Within a namespace the highest priority
comes first; entries of one priority alternate.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set as AbstractSet
from datetime import datetime
from uuid import UUID

from hetuflow_server.cluster.hints import BacklogEntry


class BacklogIndex:
    def __init__(self) -> None:
        self._all: set[BacklogEntry] = set()
        # {namespace: {priority: entries to pick from, the one served longest ago first}}
        self._ready: dict[int, dict[int, dict[BacklogEntry, None]]] = {}
        # {namespace: {placement class: entries that no waiting poll suits}}, {agent: such entries bound to
        # it}
        self._unsuited: dict[int, dict[int, dict[BacklogEntry, None]]] = {}
        self._unsuited_bound: dict[UUID, dict[BacklogEntry, None]] = {}
        # {namespace: placement classes that were ever in `_unsuited`}; it only grows.
        self._ever_unsuited: dict[int, set[int]] = {}
        # Entries whose limit is used up, until the backlog is read again.
        self._full: dict[BacklogEntry, None] = {}
        # {entry: when its first instance is due}, and a heap of them, which also has entries that are ready
        # again.
        self._postponed: dict[BacklogEntry, datetime] = {}
        self._due_heap: list[tuple[datetime, int, BacklogEntry]] = []

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[BacklogEntry]:
        return iter(self._all)

    def add(self, entry: BacklogEntry) -> None:
        """Add an entry that has a new instance.

        An unsuited entry stays unsuited, because the waiting polls are still the same. A postponed entry
        becomes ready, because the new instance may be due.
        """
        if entry not in self._all:
            self._all.add(entry)
            self._make_ready(entry)
        elif entry in self._postponed:
            del self._postponed[entry]
            self._make_ready(entry)

    def replace(self, backlog: Iterable[BacklogEntry]) -> None:
        """Take over the whole backlog; full and postponed entries become ready."""
        entries = set(backlog)
        self.remove(self._all - entries)
        for entry in (*self._full, *self._postponed):
            self._make_ready(entry)
        self._full, self._postponed, self._due_heap = {}, {}, []
        for entry in entries - self._all:
            self.add(entry)

    def remove(self, entries: Iterable[BacklogEntry]) -> None:
        """Remove entries that have no pending instance."""
        for entry in entries:
            self._all.discard(entry)
            self._full.pop(entry, None)
            self._postponed.pop(entry, None)
            self._take_out(entry)

    def postpone(self, first_due: Mapping[BacklogEntry, datetime], horizon: datetime) -> None:
        """Postpone those of these entries whose first instance is due after the horizon."""
        for entry, due_at in first_due.items():
            if due_at > horizon and entry in self._all:
                self._take_out(entry)
                self._postponed[entry] = due_at
        # The numbers keep the heap from comparing entries: a target may be None.
        self._due_heap = [
            (due_at, number, entry) for number, (entry, due_at) in enumerate(self._postponed.items())
        ]
        heapq.heapify(self._due_heap)

    def resume(self, horizon: datetime) -> None:
        """Make postponed entries ready whose first instance is due until the horizon."""
        while (due_at := self.next_due()) is not None and due_at <= horizon:
            _, _, entry = heapq.heappop(self._due_heap)
            del self._postponed[entry]
            self._make_ready(entry)

    def next_due(self) -> datetime | None:
        """Return when the first postponed entry is due."""
        while self._due_heap:
            due_at, _, entry = self._due_heap[0]
            if self._postponed.get(entry) == due_at:
                return due_at
            heapq.heappop(self._due_heap)
        return None

    def pick(
        self, namespaces: Collection[int], most: int, demand: Callable[[BacklogEntry], int | None]
    ) -> dict[BacklogEntry, int]:
        """Return up to `most` ready entries of each namespace with their `demand`, if there is any.

        `demand` returns how many instances of an entry the waiting polls could take. Entries with a demand of
        0 are set apart until `restore_classes` or `restore_bound` names them; None leaves an entry where it
        is.
        """
        picked: dict[BacklogEntry, int] = {}
        unsuited = []
        for namespace_id in self._ready.keys() & namespaces:
            count = 0
            for entry in self._in_order(namespace_id):
                demanded = demand(entry)
                if demanded:
                    picked[entry] = demanded
                    count += 1
                    if count == most:
                        break
                elif demanded is not None:
                    unsuited.append(entry)
        for entry in unsuited:
            self._set_apart(entry)
        return picked

    def note_served(self, entries: Iterable[BacklogEntry]) -> None:
        """Move these entries behind the others of their priority."""
        for entry in entries:
            level = self._ready.get(entry.namespace_id, {}).get(entry.priority, {})
            if entry in level:
                level[entry] = level.pop(entry)

    def note_full(self, entries: Iterable[BacklogEntry]) -> None:
        """Leave these entries out, whose limit is used up, until the backlog is read again."""
        for entry in entries:
            self._take_out(entry)
            self._full[entry] = None

    def unsuited_classes(self, namespace_id: int) -> AbstractSet[int]:
        """Return the placement classes that have unsuited entries."""
        return self._unsuited.get(namespace_id, {}).keys()

    def ever_unsuited_classes(self, namespace_id: int) -> AbstractSet[int]:
        """Return the placement classes that ever had unsuited entries; the set only grows."""
        return self._ever_unsuited.get(namespace_id, frozenset())

    def restore_classes(self, namespace_id: int, classes: Iterable[int]) -> None:
        """Make unsuited entries of these placement classes ready: a poll has arrived that suits them."""
        unsuited = self._unsuited.get(namespace_id)
        if unsuited:
            for placement_id in classes:
                for entry in unsuited.pop(placement_id, ()):
                    self._make_ready(entry)

    def restore_bound(self, agent_id: UUID) -> None:
        """Make unsuited entries that are bound to this agent ready: a poll of the agent has arrived."""
        for entry in self._unsuited_bound.pop(agent_id, ()):
            self._make_ready(entry)

    def _in_order(self, namespace_id: int) -> Iterator[BacklogEntry]:
        levels = self._ready[namespace_id]
        for priority in sorted(levels, reverse=True):
            yield from levels[priority]

    def _make_ready(self, entry: BacklogEntry) -> None:
        self._ready.setdefault(entry.namespace_id, {}).setdefault(entry.priority, {})[entry] = None

    def _set_apart(self, entry: BacklogEntry) -> None:
        self._take_out(entry)
        if entry.target is not None:
            self._unsuited_bound.setdefault(entry.target, {})[entry] = None
        else:
            classes = self._unsuited.setdefault(entry.namespace_id, {})
            classes.setdefault(entry.placement_id, {})[entry] = None
            self._ever_unsuited.setdefault(entry.namespace_id, set()).add(entry.placement_id)

    def _take_out(self, entry: BacklogEntry) -> None:
        """Take an entry out of the ready and the unsuited ones."""
        _discard(self._ready, entry.namespace_id, entry.priority, entry)
        _discard(self._unsuited, entry.namespace_id, entry.placement_id, entry)
        if entry.target is not None and (bound := self._unsuited_bound.get(entry.target)) is not None:
            bound.pop(entry, None)
            if not bound:
                del self._unsuited_bound[entry.target]


def _discard(
    index: dict[int, dict[int, dict[BacklogEntry, None]]], first: int, second: int, entry: BacklogEntry
) -> None:
    members = index.get(first, {}).get(second)
    if members is not None and entry in members:
        del members[entry]
        if not members:
            del index[first][second]
            if not index[first]:
                del index[first]
