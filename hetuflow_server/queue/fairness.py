"""Fair shares of the namespaces, by weight, however many instances each of them has pending.

Stride scheduling: each instance that a namespace is assigned advances the namespace's virtual time by
1/weight, and the namespace with the lowest virtual time is next. An idle namespace does not save up time:
when it becomes active, it starts at the lowest virtual time of the active namespaces.

Agents differ, so the namespaces that compete differ from claim to claim. A namespace that few agents can
serve falls behind the others meanwhile. It must not catch up later at the cost of namespaces that competed
all along. So before each distribution the gap between one competitor and the next is reduced to a few rounds.
Smaller gaps are not changed, so the shares of namespaces that compete all the time are exact.

The shares are in the memory of one server. If each server distributes fairly, so do all of them together.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from hetuflow_server.cluster.hints import BacklogEntry

N = TypeVar("N", int, float)

# In rounds; in one round the competitor with the lowest weight is assigned one instance. Alternating between
# equal namespaces needs a gap of one round.
_MOST_ROUNDS_BEHIND: Final = 4
_MOST_ENTRIES: Final = 64


class StrideShares:
    def __init__(self, default_weight: float = 100) -> None:
        self._default_weight = default_weight
        self._weights: dict[int, float] = {}
        self._time: dict[int, float] = {}
        self._active: set[int] = set()
        # The lowest time of the active namespaces; it stays while none is active.
        self._floor = 0.0
        # {namespace: number of its last charge}. Of two namespaces with equal times, the other one is next.
        self._last_charge: dict[int, int] = {}
        self._charges = 0
        self._uncounted: Counter[int] = Counter()
        # {entry: number of its last quota}. Of two entries with equal priority, the other one is next.
        self._last_quota: dict[BacklogEntry, int] = {}
        self._distributed = 0

    def observe(self, backlog: Iterable[BacklogEntry]) -> None:
        """Take note of the whole backlog: namespaces without an entry have become idle."""
        entries = set(backlog)
        self._active &= {entry.namespace_id for entry in entries}
        self._raise_floor()
        # Times above the floor are kept: a namespace that was assigned more than its share stays behind the
        # others if it is idle for a moment.
        self._time = {
            namespace: time
            for namespace, time in self._time.items()
            if namespace in self._active or time > self._floor
        }
        self._weights = _among(self._time, self._weights)
        self._last_charge = _among(self._time, self._last_charge)
        self._last_quota = {entry: last for entry, last in self._last_quota.items() if entry in entries}

    def quotas(
        self,
        entries: Iterable[BacklogEntry],
        weights: Mapping[int, float],
        limit: int,
        *,
        at_most: Mapping[BacklogEntry, int] | None = None,
        most_entries: int = _MOST_ENTRIES,
    ) -> list[tuple[BacklogEntry, int]]:
        """Return how many instances to claim of which entries, `limit` in all.

        Namespaces share by weight. Within a namespace the highest priority comes first, and entries of the
        same priority alternate. `at_most` caps entries that are known to have fewer instances, or less room.
        Quotas are not charged: `charge` takes the numbers that were assigned.
        """
        groups = _by_namespace(entries)
        self._weights.update(
            (namespace, weights.get(namespace, self._default_weight)) for namespace in groups
        )
        self._activate(groups)
        self._limit_gaps(groups)
        quotas = self._distribute(groups, limit, at_most or {}, most_entries)
        for entry, count in quotas.items():
            self._distributed += count
            self._last_quota[entry] = self._distributed
        return list(quotas.items())

    def charge(self, namespace_id: int, count: int) -> None:
        """Note that instances of a namespace were assigned; a negative count takes back unused ones."""
        weight = self._weights.get(namespace_id, self._default_weight)
        self._time[namespace_id] = self._time.get(namespace_id, self._floor) + count / weight
        self._charges += 1
        self._uncounted[namespace_id] += count
        self._last_charge[namespace_id] = self._charges

    def take_counts(self) -> dict[int, int]:
        """Return {namespace: how many instances were charged since the last call}."""
        counts, self._uncounted = self._uncounted, Counter()
        return dict(counts)

    def _activate(self, namespaces: Iterable[int]) -> None:
        inactive = [namespace for namespace in namespaces if namespace not in self._active]
        self._raise_floor()
        for namespace in inactive:
            self._time[namespace] = max(self._floor, self._time.get(namespace, self._floor))
            self._active.add(namespace)

    def _raise_floor(self) -> None:
        if self._active:
            self._floor = max(self._floor, min(self._time[namespace] for namespace in self._active))

    def _limit_gaps(self, namespaces: Iterable[int]) -> None:
        """Move namespaces that are far behind their next competitor forward, all by the same distance."""
        ranked = sorted(namespaces, key=lambda namespace: self._time[namespace], reverse=True)
        if not ranked:
            return
        widest = _MOST_ROUNDS_BEHIND / min(self._weights[namespace] for namespace in ranked)
        shift, ahead = 0.0, self._time[ranked[0]]
        for namespace in ranked:
            shift = max(shift, ahead - widest - self._time[namespace])
            self._time[namespace] += shift
            ahead = self._time[namespace]

    def _distribute(
        self,
        groups: Mapping[int, list[BacklogEntry]],
        limit: int,
        at_most: Mapping[BacklogEntry, int],
        most_entries: int,
    ) -> dict[BacklogEntry, int]:
        if len(groups) == 1:
            (entries,) = groups.values()
            if len(entries) == 1 and most_entries > 0:
                # A single entry gets the whole quota; there is no need to count it one by one.
                count = min(limit, at_most.get(entries[0], limit))
                return {entries[0]: count} if count > 0 else {}
        heap = [
            (self._time[namespace], self._last_charge.get(namespace, 0), namespace) for namespace in groups
        ]
        heapq.heapify(heap)
        # Built on demand: a distribution reaches few of possibly many namespaces.
        queues: dict[int, _NamespaceQueue] = {}
        quotas: dict[BacklogEntry, int] = {}
        for _ in range(limit):
            entry = None
            while heap and entry is None:
                time, last, namespace = heap[0]
                if namespace not in queues:
                    queues[namespace] = _NamespaceQueue(self._in_order(groups[namespace]), at_most)
                entry = queues[namespace].next_entry(quotas, may_open=len(quotas) < most_entries)
                if entry is None:
                    heapq.heappop(heap)
                else:
                    heapq.heapreplace(heap, (time + 1 / self._weights[namespace], last, namespace))
            if entry is None:
                break
            quotas[entry] = quotas.get(entry, 0) + 1
        return quotas

    def _in_order(self, entries: Iterable[BacklogEntry]) -> list[BacklogEntry]:
        return sorted(
            entries, key=lambda entry: (-entry.priority, self._last_quota.get(entry, 0), entry.placement_id)
        )


class _NamespaceQueue:
    """The entries of a namespace in the order in which they get their quotas."""

    def __init__(self, entries: Sequence[BacklogEntry], at_most: Mapping[BacklogEntry, int]) -> None:
        self._at_most = at_most
        # By priority, the highest last, because levels are used up from the end.
        self._levels = _levels(entries)
        self._next = 0

    def next_entry(self, quotas: Mapping[BacklogEntry, int], *, may_open: bool) -> BacklogEntry | None:
        """Return the entry of the next instance; None if all are used up.

        Without `may_open` only entries that have a quota already are considered.
        """
        while self._levels:
            level = self._levels[-1]
            while level:
                self._next %= len(level)
                entry = level[self._next]
                quota = quotas.get(entry, 0)
                if quota < self._at_most.get(entry, quota + 1) and (quota or may_open):
                    self._next += 1
                    return entry
                del level[self._next]
            self._levels.pop()
            self._next = 0
        return None


def _levels(entries: Sequence[BacklogEntry]) -> list[list[BacklogEntry]]:
    levels: dict[int, list[BacklogEntry]] = {}
    for entry in entries:
        levels.setdefault(entry.priority, []).append(entry)
    return [levels[priority] for priority in sorted(levels)]


def _among(kept: Mapping[int, float], values: Mapping[int, N]) -> dict[int, N]:
    return {namespace: value for namespace, value in values.items() if namespace in kept}


def _by_namespace(entries: Iterable[BacklogEntry]) -> dict[int, list[BacklogEntry]]:
    groups: dict[int, list[BacklogEntry]] = {}
    # An entry that is named twice counts once.
    for entry in dict.fromkeys(entries):
        groups.setdefault(entry.namespace_id, []).append(entry)
    return groups
