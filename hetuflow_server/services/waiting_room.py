"""The waiting room: polls that wait for work, kept so that a round costs what it deals, not how many wait.

Everything a round asks about all of them is up to date as they come and go: what they want in all, how far
ahead they take work, which namespaces they serve, and for the classes of work met lately who may take them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from hetuflow_core.placement import AgentFacts
from hetuflow_server.services.askers import Asker

K = TypeVar("K")

# Classes whose takers are kept; each costs a moment whenever somebody comes or goes.
_MOST_CLASSES = 64
_NOBODY: dict[Asker, None] = {}


class WaitingRoom:
    def __init__(self, fits: Callable[[int, AgentFacts], bool]) -> None:
        self._fits = fits
        self._all: dict[Asker, None] = {}
        self._new: dict[Asker, None] = {}
        # {namespace: who wants work of it}, {agent: its polls that want work}
        self._hungry: dict[int, dict[Asker, None]] = {}
        self._of_agent: dict[UUID, dict[Asker, None]] = {}
        # {(namespace, class): who may take its work}; the class asked for last stands last.
        self._takers: OrderedDict[tuple[int, int], dict[Asker, None]] = OrderedDict()
        self._prefetches: Counter[timedelta] = Counter()
        self.free = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Asker]:
        return iter(self._all)

    @property
    def prefetch(self) -> timedelta:
        """How far ahead of its due time the most eager takes work."""
        return max(self._prefetches, default=timedelta(0))

    @property
    def namespaces(self) -> Collection[int]:
        return self._hungry.keys()

    def newcomers(self) -> list[Asker]:
        """Return those no round has looked for yet."""
        return list(self._new)

    def enter(self, asker: Asker) -> None:
        self._all[asker] = self._new[asker] = None
        if asker.free <= 0:
            return
        self.free += asker.free
        self._prefetches[asker.prefetch] += 1
        self._of_agent.setdefault(asker.agent_id, {})[asker] = None
        for namespace_id in asker.served:
            self._hungry.setdefault(namespace_id, {})[asker] = None
        for (namespace_id, placement_id), takers in self._takers.items():
            if namespace_id in asker.served and self._fits(placement_id, asker.facts):
                takers[asker] = None

    def leave(self, asker: Asker) -> None:
        """Let somebody go; going twice is going once."""
        self._new.pop(asker, None)
        if asker not in self._all:
            return
        del self._all[asker]
        if asker.free <= 0:
            return
        self.free -= asker.free
        self._prefetches[asker.prefetch] -= 1
        if self._prefetches[asker.prefetch] <= 0:
            del self._prefetches[asker.prefetch]
        _drop(self._of_agent, asker.agent_id, asker)
        for namespace_id in asker.served:
            _drop(self._hungry, namespace_id, asker)
        for takers in self._takers.values():
            takers.pop(asker, None)

    def earlier(self, asker: Asker) -> Asker | None:
        """Return the same request as it was asked before, if it still waits for work."""
        same = (one for one in self._of_agent.get(asker.agent_id, ()) if one.request_id == asker.request_id)
        return next(same, None)

    def note_look(self, askers: Collection[Asker]) -> None:
        """A round has looked for these."""
        for asker in askers:
            self._new.pop(asker, None)
            asker.note_look()

    def takers(self, namespace_id: int, placement_id: int, target: UUID | None = None) -> Collection[Asker]:
        """Return who may take work of a class, or of one bound to an agent, in the order they came."""
        if target is not None:
            return [
                asker
                for asker in self._of_agent.get(target, ())
                if namespace_id in asker.served and self._fits(placement_id, asker.facts)
            ]
        key = (namespace_id, placement_id)
        takers = self._takers.get(key)
        if takers is None:
            hungry = self._hungry.get(namespace_id, _NOBODY)
            takers = {asker: None for asker in hungry if self._fits(placement_id, asker.facts)}
            self._takers[key] = takers
            if len(self._takers) > _MOST_CLASSES:
                self._takers.popitem(last=False)
        self._takers.move_to_end(key)
        return takers.keys()


def _drop(index: dict[K, dict[Asker, None]], key: K, asker: Asker) -> None:
    members = index.get(key)
    if members is not None:
        members.pop(asker, None)
        if not members:
            del index[key]
