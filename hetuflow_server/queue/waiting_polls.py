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
from hetuflow_server.queue.waiting_poll import WaitingPoll

K = TypeVar("K")

# Classes whose takers are kept; each costs a moment whenever somebody comes or goes.
_MOST_CLASSES = 64
_NOBODY: dict[WaitingPoll, None] = {}


class WaitingPolls:
    def __init__(self, fits: Callable[[int, AgentFacts], bool]) -> None:
        self._fits = fits
        self._all: dict[WaitingPoll, None] = {}
        self._new: dict[WaitingPoll, None] = {}
        # {namespace: who wants work of it}, {agent: its polls that want work}
        self._hungry: dict[int, dict[WaitingPoll, None]] = {}
        self._of_agent: dict[UUID, dict[WaitingPoll, None]] = {}
        # {(namespace, class): who may take its work}; the class asked for last stands last.
        self._takers: OrderedDict[tuple[int, int], dict[WaitingPoll, None]] = OrderedDict()
        self._prefetches: Counter[timedelta] = Counter()
        self.free = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[WaitingPoll]:
        return iter(self._all)

    @property
    def prefetch(self) -> timedelta:
        """How far ahead of its due time the most eager takes work."""
        return max(self._prefetches, default=timedelta(0))

    @property
    def namespaces(self) -> Collection[int]:
        return self._hungry.keys()

    def newcomers(self) -> list[WaitingPoll]:
        """Return those no round has looked for yet."""
        return list(self._new)

    def enter(self, waiting_poll: WaitingPoll) -> None:
        self._all[waiting_poll] = self._new[waiting_poll] = None
        if waiting_poll.free <= 0:
            return
        self.free += waiting_poll.free
        self._prefetches[waiting_poll.prefetch] += 1
        self._of_agent.setdefault(waiting_poll.agent_id, {})[waiting_poll] = None
        for namespace_id in waiting_poll.served:
            self._hungry.setdefault(namespace_id, {})[waiting_poll] = None
        for (namespace_id, placement_id), takers in self._takers.items():
            if namespace_id in waiting_poll.served and self._fits(placement_id, waiting_poll.facts):
                takers[waiting_poll] = None

    def leave(self, waiting_poll: WaitingPoll) -> None:
        """Let somebody go; going twice is going once."""
        self._new.pop(waiting_poll, None)
        if waiting_poll not in self._all:
            return
        del self._all[waiting_poll]
        if waiting_poll.free <= 0:
            return
        self.free -= waiting_poll.free
        self._prefetches[waiting_poll.prefetch] -= 1
        if self._prefetches[waiting_poll.prefetch] <= 0:
            del self._prefetches[waiting_poll.prefetch]
        _drop(self._of_agent, waiting_poll.agent_id, waiting_poll)
        for namespace_id in waiting_poll.served:
            _drop(self._hungry, namespace_id, waiting_poll)
        for takers in self._takers.values():
            takers.pop(waiting_poll, None)

    def earlier(self, waiting_poll: WaitingPoll) -> WaitingPoll | None:
        """Return the same request as it was asked before, if it still waits for work."""
        same = (
            one
            for one in self._of_agent.get(waiting_poll.agent_id, ())
            if one.request_id == waiting_poll.request_id
        )
        return next(same, None)

    def note_look(self, polls: Collection[WaitingPoll]) -> None:
        """A round has looked for these."""
        for waiting_poll in polls:
            self._new.pop(waiting_poll, None)
            waiting_poll.note_look()

    def takers(
        self, namespace_id: int, placement_id: int, target: UUID | None = None
    ) -> Collection[WaitingPoll]:
        """Return who may take work of a class, or of one bound to an agent, in the order they came."""
        if target is not None:
            return [
                waiting_poll
                for waiting_poll in self._of_agent.get(target, ())
                if namespace_id in waiting_poll.served and self._fits(placement_id, waiting_poll.facts)
            ]
        key = (namespace_id, placement_id)
        takers = self._takers.get(key)
        if takers is None:
            hungry = self._hungry.get(namespace_id, _NOBODY)
            takers = {
                waiting_poll: None for waiting_poll in hungry if self._fits(placement_id, waiting_poll.facts)
            }
            self._takers[key] = takers
            if len(self._takers) > _MOST_CLASSES:
                self._takers.popitem(last=False)
        self._takers.move_to_end(key)
        return takers.keys()


def _drop(index: dict[K, dict[WaitingPoll, None]], key: K, waiting_poll: WaitingPoll) -> None:
    members = index.get(key)
    if members is not None:
        members.pop(waiting_poll, None)
        if not members:
            del index[key]
