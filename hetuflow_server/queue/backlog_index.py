"""Where work waits, in an order from which a claim picks a few heads without going through all of them.

Heads nobody who waits may take are set aside and cost nothing until somebody comes who may; heads of which
nothing is due yet are left out until then. Within a namespace the highest priority comes first; heads of one
priority take turns.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set as AbstractSet
from datetime import datetime
from uuid import UUID

from hetuflow_server.queue.fairness import Head


class BacklogIndex:
    def __init__(self) -> None:
        # {namespace: {priority: its heads, the one served longest ago first}}
        self._ready: dict[int, dict[int, dict[Head, None]]] = {}
        # {namespace: {class: heads nobody here may take}}, and {agent: those that are bound to it}
        self._aside: dict[int, dict[int, dict[Head, None]]] = {}
        self._bound: dict[UUID, dict[Head, None]] = {}
        # Those without room under a limit, until it is looked again.
        self._full: dict[Head, None] = {}
        # {head: when something of it is due}, and the same in this order, with some that are awake again.
        self._asleep: dict[Head, datetime] = {}
        self._alarms: list[tuple[datetime, int, Head]] = []
        self._all: set[Head] = set()
        # {namespace: classes that were set aside at any time}; it only grows.
        self._ever_aside: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Head]:
        return iter(self._all)

    def add(self, head: Head) -> None:
        """Note a head; one that was set aside stays there, because who waits is still the same.

        One that was asleep is not: what it is told for may be due.
        """
        if head not in self._all:
            self._all.add(head)
            self._place(head)
        elif head in self._asleep:
            del self._asleep[head]
            self._place(head)

    def replace(self, heads: Iterable[Head]) -> None:
        """Say what waits, all of it; what was without room or asleep is ready again."""
        found = set(heads)
        self.remove(self._all - found)
        for head in (*self._full, *self._asleep):
            self._place(head)
        self._full, self._asleep, self._alarms = {}, {}, []
        for head in found - self._all:
            self.add(head)

    def remove(self, heads: Iterable[Head]) -> None:
        """Nothing waits in these any more."""
        for head in heads:
            self._all.discard(head)
            self._full.pop(head, None)
            self._asleep.pop(head, None)
            self._unplace(head)

    def lay_down(self, first_due: Mapping[Head, datetime], horizon: datetime) -> None:
        """Say when the first of each head is due: those beyond the horizon are asleep until `rouse`."""
        for head, due_at in first_due.items():
            if due_at > horizon and head in self._all:
                self._unplace(head)
                self._asleep[head] = due_at
        # The numbers only keep heads from being compared.
        self._alarms = [(due_at, number, head) for number, (head, due_at) in enumerate(self._asleep.items())]
        heapq.heapify(self._alarms)

    def rouse(self, horizon: datetime) -> None:
        """What is due until then is ready."""
        while (first := self.next_alarm()) is not None and first <= horizon:
            _, _, head = heapq.heappop(self._alarms)
            del self._asleep[head]
            self._place(head)

    def next_alarm(self) -> datetime | None:
        """Return when the first of those asleep is due."""
        while self._alarms:
            due_at, _, head = self._alarms[0]
            if self._asleep.get(head) == due_at:
                return due_at
            heapq.heappop(self._alarms)
        return None

    def pick(
        self, namespaces: Collection[int], most: int, takers: Callable[[Head], int | None]
    ) -> dict[Head, int]:
        """Return up to `most` heads of each namespace that somebody takes rows of, and how many.

        Those nobody takes are set aside until `welcome` is told of somebody who may; those of which `takers`
        knows nothing yet are passed over.
        """
        picked: dict[Head, int] = {}
        barren = []
        for namespace_id in self._ready.keys() & namespaces:
            count = 0
            for head in self._in_order(namespace_id):
                rows = takers(head)
                if rows:
                    picked[head] = rows
                    count += 1
                    if count == most:
                        break
                elif rows is not None:
                    barren.append(head)
        for head in barren:
            self._set_aside(head)
        return picked

    def note_turns(self, heads: Iterable[Head]) -> None:
        """These were served: others of their priority come first next time."""
        for head in heads:
            level = self._ready.get(head.namespace_id, {}).get(head.priority, {})
            if head in level:
                level[head] = level.pop(head)

    def note_full(self, heads: Iterable[Head]) -> None:
        """These have no room under a limit; they are left out until the heads are read again."""
        for head in heads:
            self._unplace(head)
            self._full[head] = None

    def ever_aside(self, namespace_id: int) -> AbstractSet[int]:
        """Classes of which something was set aside at any time; they only become more."""
        return self._ever_aside.get(namespace_id, frozenset())

    def classes_aside(self, namespace_id: int) -> AbstractSet[int]:
        """Classes of which something was set aside."""
        return self._aside.get(namespace_id, {}).keys()

    def welcome(self, namespace_id: int, classes: Iterable[int]) -> None:
        """Somebody has come who may take these classes: they are ready again."""
        aside = self._aside.get(namespace_id)
        if aside:
            for placement_id in classes:
                for head in aside.pop(placement_id, ()):
                    self._place(head)

    def welcome_agent(self, agent_id: UUID) -> None:
        """What is bound to this agent is ready again."""
        for head in self._bound.pop(agent_id, ()):
            self._place(head)

    def _in_order(self, namespace_id: int) -> Iterator[Head]:
        levels = self._ready[namespace_id]
        for priority in sorted(levels, reverse=True):
            yield from levels[priority]

    def _place(self, head: Head) -> None:
        self._ready.setdefault(head.namespace_id, {}).setdefault(head.priority, {})[head] = None

    def _set_aside(self, head: Head) -> None:
        self._unplace(head)
        if head.target is not None:
            self._bound.setdefault(head.target, {})[head] = None
        else:
            self._ever_aside.setdefault(head.namespace_id, set()).add(head.placement_id)
            self._aside.setdefault(head.namespace_id, {}).setdefault(head.placement_id, {})[head] = None

    def _unplace(self, head: Head) -> None:
        """Take a head out of wherever it stands."""
        _drop(self._ready, head.namespace_id, head.priority, head)
        _drop(self._aside, head.namespace_id, head.placement_id, head)
        if head.target is not None and (bound := self._bound.get(head.target)) is not None:
            bound.pop(head, None)
            if not bound:
                del self._bound[head.target]


def _drop(index: dict[int, dict[int, dict[Head, None]]], first: int, second: int, head: Head) -> None:
    members = index.get(first, {}).get(second)
    if members is not None and head in members:
        del members[head]
        if not members:
            del index[first][second]
            if not index[first]:
                del index[first]
