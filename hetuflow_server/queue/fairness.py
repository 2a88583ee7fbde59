"""Fair shares of namespaces, by weight, whatever waits in each of them.

Stride scheduling: every row a namespace is given moves its virtual time on by 1/weight, and the namespace
whose time is least is next. Whoever has nothing waiting gains nothing by it: a namespace that becomes active
starts at the least time of those that are.

Which namespaces compete differs from claim to claim, because agents differ: a namespace whose work fits few
agents falls behind the others while it waits. So before each deal the distance between one competitor and
the next is brought down to a few rounds; what somebody missed where it could not compete is not paid back
where it can, at the cost of those who were there. Distances within a group that kept up are not touched, so
its shares are not either.

All of this is the memory of one server: several servers that each deal fairly deal fairly together.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

N = TypeVar("N", int, float)

# In rounds: the time in which the lightest of the competitors is given one row. Taking turns needs one.
_MOST_ROUNDS_BEHIND: Final = 4
_MOST_HEADS: Final = 64


class Head(NamedTuple):
    """Claimable work of one namespace, class and priority: where a queue begins."""

    namespace_id: int
    placement_id: int
    priority: int
    # The one agent it is bound to; None: whichever suits.
    target: UUID | None = None


class StrideShares:
    def __init__(self, default_weight: float = 100) -> None:
        self._default_weight = default_weight
        self._weights: dict[int, float] = {}
        self._time: dict[int, float] = {}
        self._active: set[int] = set()
        # The least time of the active, kept while nobody is.
        self._floor = 0.0
        # Who was given something last: of two namespaces that are level, the other one is next.
        self._last_charge: dict[int, int] = {}
        self._charges = 0
        self._uncounted: Counter[int] = Counter()
        # When a head was last dealt to: heads of one priority take turns.
        self._last_turn: dict[Head, int] = {}
        self._turn = 0

    def observe(self, heads: Iterable[Head]) -> None:
        """Say what waits, all of it: namespaces that are not among the heads have become idle."""
        waiting = set(heads)
        self._active &= {head.namespace_id for head in waiting}
        self._raise_floor()
        # Times above the floor are kept: leaving for a moment does not wipe out what was given too much.
        self._time = {
            namespace: time
            for namespace, time in self._time.items()
            if namespace in self._active or time > self._floor
        }
        self._weights = _among(self._time, self._weights)
        self._last_charge = _among(self._time, self._last_charge)
        self._last_turn = {head: turn for head, turn in self._last_turn.items() if head in waiting}

    def quotas(
        self,
        heads: Iterable[Head],
        weights: Mapping[int, float],
        want: int,
        *,
        at_most: Mapping[Head, int] | None = None,
        most_heads: int = _MOST_HEADS,
    ) -> list[tuple[Head, int]]:
        """How many rows to take from which heads, `want` in all.

        Between namespaces by weight; within one, the highest priority first and heads of the same priority
        in turn. `at_most` caps heads that are known to have less, or less room. Nothing is charged: what
        was really taken is told with `charge`.
        """
        groups = _grouped(heads)
        self._weights.update(
            (namespace, weights.get(namespace, self._default_weight)) for namespace in groups
        )
        self._join(groups)
        self._close_ranks(groups)
        quotas = self._deal(groups, want, at_most or {}, most_heads)
        for head, rows in quotas.items():
            self._turn += rows
            self._last_turn[head] = self._turn
        return list(quotas.items())

    def charge(self, namespace_id: int, rows: int) -> None:
        """Note that a namespace was given rows; a negative number takes back what could not be used."""
        weight = self._weights.get(namespace_id, self._default_weight)
        self._time[namespace_id] = self._time.get(namespace_id, self._floor) + rows / weight
        self._charges += 1
        self._uncounted[namespace_id] += rows
        self._last_charge[namespace_id] = self._charges

    def _join(self, namespaces: Iterable[int]) -> None:
        newcomers = [namespace for namespace in namespaces if namespace not in self._active]
        self._raise_floor()
        for namespace in newcomers:
            self._time[namespace] = max(self._floor, self._time.get(namespace, self._floor))
            self._active.add(namespace)

    def _raise_floor(self) -> None:
        if self._active:
            self._floor = max(self._floor, min(self._time[namespace] for namespace in self._active))

    def _close_ranks(self, namespaces: Iterable[int]) -> None:
        """Move those who fell far behind their next competitor up, all by the same distance."""
        ranked = sorted(namespaces, key=lambda namespace: self._time[namespace], reverse=True)
        if not ranked:
            return
        widest = _MOST_ROUNDS_BEHIND / min(self._weights[namespace] for namespace in ranked)
        shift, ahead = 0.0, self._time[ranked[0]]
        for namespace in ranked:
            shift = max(shift, ahead - widest - self._time[namespace])
            self._time[namespace] += shift
            ahead = self._time[namespace]

    def take_counts(self) -> dict[int, int]:
        """Return how many rows each namespace was charged for since this was last asked."""
        counts, self._uncounted = self._uncounted, Counter()
        return dict(counts)

    def _deal(
        self, groups: Mapping[int, list[Head]], want: int, at_most: Mapping[Head, int], most_heads: int
    ) -> dict[Head, int]:
        if len(groups) == 1:
            (heads,) = groups.values()
            if len(heads) == 1 and most_heads > 0:
                # All there is goes to the only one there is; no need to count row by row.
                rows = min(want, at_most.get(heads[0], want))
                return {heads[0]: rows} if rows > 0 else {}
        turns = [
            (self._time[namespace], self._last_charge.get(namespace, 0), namespace) for namespace in groups
        ]
        heapq.heapify(turns)
        # Made when their turn comes: a deal reaches few of the namespaces there may be.
        queues: dict[int, _Queue] = {}
        quotas: dict[Head, int] = {}
        for _ in range(want):
            head = None
            while turns and head is None:
                time, last, namespace = turns[0]
                if namespace not in queues:
                    queues[namespace] = _Queue(self._in_order(groups[namespace]), at_most)
                head = queues[namespace].next_head(quotas, may_open=len(quotas) < most_heads)
                if head is None:
                    heapq.heappop(turns)
                else:
                    heapq.heapreplace(turns, (time + 1 / self._weights[namespace], last, namespace))
            if head is None:
                break
            quotas[head] = quotas.get(head, 0) + 1
        return quotas

    def _in_order(self, heads: Iterable[Head]) -> list[Head]:
        return sorted(
            heads, key=lambda head: (-head.priority, self._last_turn.get(head, 0), head.placement_id)
        )


class _Queue:
    """A namespace's heads in the order they are served."""

    def __init__(self, heads: Sequence[Head], at_most: Mapping[Head, int]) -> None:
        self._at_most = at_most
        # By priority, the highest last: levels are used up from the end.
        self._levels = _levels(heads)
        self._next = 0

    def next_head(self, quotas: Mapping[Head, int], *, may_open: bool) -> Head | None:
        """The head of the next row, or None if there is none (or none without opening another one)."""
        while self._levels:
            level = self._levels[-1]
            while level:
                self._next %= len(level)
                head = level[self._next]
                assigned = quotas.get(head, 0)
                if assigned < self._at_most.get(head, assigned + 1) and (assigned or may_open):
                    self._next += 1
                    return head
                del level[self._next]
            self._levels.pop()
            self._next = 0
        return None


def _levels(heads: Sequence[Head]) -> list[list[Head]]:
    levels: dict[int, list[Head]] = {}
    for head in heads:
        levels.setdefault(head.priority, []).append(head)
    return [levels[priority] for priority in sorted(levels)]


def _among(kept: Mapping[int, float], values: Mapping[int, N]) -> dict[int, N]:
    return {namespace: value for namespace, value in values.items() if namespace in kept}


def _grouped(heads: Iterable[Head]) -> dict[int, list[Head]]:
    groups: dict[int, list[Head]] = {}
    # A head that is named twice is one head.
    for head in dict.fromkeys(heads):
        groups.setdefault(head.namespace_id, []).append(head)
    return groups
