"""Polls that wait on this server, and the direct hand-off of a new instance to one of them.

Up to 10,000 polls wait, and a round of the dispatcher must cost what it assigns, not how many polls wait. So
everything that a round needs to know about all polls is kept up to date as polls come and go: their free
slots, the longest prefetch, their namespaces, and which polls suit recently used placement classes.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import takewhile
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

import structlog

from hetuflow_core.placement import AgentFacts, Resources, RunningJob
from hetuflow_server.queue.rows import Claimed, Recipient

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.dispatcher")

K = TypeVar("K")

# Placement classes whose suitable polls are kept. Each costs one check whenever a poll arrives.
_MOST_CLASSES = 64
_NO_POLLS: dict[WaitingPoll, None] = {}


@dataclass(eq=False, slots=True)
class WaitingPoll:
    """One poll of an agent that waits for instances."""

    facts: AgentFacts
    session_id: UUID
    request_id: UUID
    # The namespaces of which the agent takes instances.
    served: frozenset[int]
    # How many instances the agent asks for, and how many it can run in all.
    free: int
    slots: int
    # How long before its due time the agent takes an instance.
    prefetch: timedelta
    # The name of the agent.
    name: str | None = None
    # The agent's free resources, as it reports them.
    free_resources: Resources = field(default_factory=Resources)
    # {namespace: jobs that the agent runs, as it reports them}
    running: Mapping[int, Sequence[RunningJob]] = field(default_factory=dict)
    # An answer to the same request may have been lost, with instances that are reserved for the request.
    repeated: bool = True
    # The poll may be assigned instances: a round has checked for such reservations and found none.
    eligible: bool = False
    # The poll returns early, because there may be commands for its agent.
    dismissed: bool = False
    # No round has considered the poll yet.
    new: bool = True
    # The poll returns after its first round at the latest.
    ending: bool = False
    answer: asyncio.Future[list[Claimed]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    recipient: Recipient = field(init=False)
    _delivered: asyncio.Future[bool] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.recipient = Recipient(self.facts.agent_id, self.session_id, self.request_id)

    @property
    def agent_id(self) -> UUID:
        return self.facts.agent_id

    @property
    def assigned(self) -> list[Claimed]:
        """The instances that the poll was assigned so far."""
        answer = self.answer
        if not answer.done() or answer.cancelled() or answer.exception() is not None:
            return []
        return answer.result()

    def assign(self, claimed: list[Claimed]) -> None:
        """Answer the poll with these instances, or with none."""
        if not self.answer.done():
            self.answer.set_result(claimed)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def dismiss(self) -> None:
        """End the poll early."""
        self.dismissed = True
        self.end()

    def end(self) -> None:
        """Answer the poll without instances, but let a new poll have its first round."""
        if self.new:
            self.ending = True
        else:
            self.assign([])

    def note_round(self) -> None:
        """A round has considered the poll."""
        self.new = False
        if self.ending:
            self.assign([])

    async def deliver(self, instance: Claimed) -> bool:
        """Assign an instance, and return once the poll's answer to the agent is complete.

        False: the answer failed, or the agent disconnected, and the instance was released.
        """
        self._delivered = asyncio.get_running_loop().create_future()
        self.assign([instance])
        return await self._delivered

    def note_delivered(self, *, complete: bool) -> None:
        """Report to `deliver` that the answer to the agent is complete, or failed."""
        if self._delivered is not None and not self._delivered.done():
            self._delivered.set_result(complete)


class WaitingPolls:
    """All waiting polls of this server."""

    def __init__(
        self, fits: Callable[[int, AgentFacts], bool], on_arrival: Callable[[], None] = lambda: None
    ) -> None:
        """`fits` returns whether an agent may run instances of a placement class."""
        self._fits = fits
        self._on_arrival = on_arrival
        self._closed = False
        self._all: dict[WaitingPoll, None] = {}
        self._new: dict[WaitingPoll, None] = {}
        # Polls with free slots, by namespace and by agent.
        self._by_namespace: dict[int, dict[WaitingPoll, None]] = {}
        self._by_agent: dict[UUID, dict[WaitingPoll, None]] = {}
        # {(namespace, placement class): suitable polls with free slots}, the most recently used class last.
        self._suitable: OrderedDict[tuple[int, int], dict[WaitingPoll, None]] = OrderedDict()
        self._prefetches: Counter[timedelta] = Counter()
        # (time, poll) of the second check for earlier reservations, in the order of time.
        self._second_checks: deque[tuple[float, WaitingPoll]] = deque()
        # The free slots of all polls.
        self.free = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[WaitingPoll]:
        return iter(self._all)

    @property
    def prefetch(self) -> timedelta:
        """The longest prefetch of all polls."""
        return max(self._prefetches, default=timedelta(0))

    @property
    def namespaces(self) -> Collection[int]:
        return self._by_namespace.keys()

    def add(self, poll: WaitingPoll) -> None:
        """Let a poll wait, unless the server is stopping."""
        if self._closed:
            poll.assign([])
            return
        self._all[poll] = self._new[poll] = None
        self._on_arrival()
        if poll.free <= 0:
            return
        self.free += poll.free
        self._prefetches[poll.prefetch] += 1
        self._by_agent.setdefault(poll.agent_id, {})[poll] = None
        for namespace_id in poll.served:
            self._by_namespace.setdefault(namespace_id, {})[poll] = None
        for (namespace_id, placement_id), suitable in self._suitable.items():
            if namespace_id in poll.served and self._fits(placement_id, poll.facts):
                suitable[poll] = None

    def remove(self, poll: WaitingPoll) -> None:
        """Remove a poll; removing it twice has no effect."""
        self._new.pop(poll, None)
        if poll not in self._all:
            return
        del self._all[poll]
        if poll.free <= 0:
            return
        self.free -= poll.free
        self._prefetches[poll.prefetch] -= 1
        if self._prefetches[poll.prefetch] <= 0:
            del self._prefetches[poll.prefetch]
        _discard(self._by_agent, poll.agent_id, poll)
        for namespace_id in poll.served:
            _discard(self._by_namespace, namespace_id, poll)
        for suitable in self._suitable.values():
            suitable.pop(poll, None)

    def supersede(self, poll: WaitingPoll) -> None:
        """Answer an earlier poll of the same request: the agent has disconnected to send it again."""
        for earlier in tuple(self._by_agent.get(poll.agent_id, ())):
            if earlier.request_id == poll.request_id:
                self.remove(earlier)
                earlier.assign([])

    def fail(self, error: Exception) -> None:
        """Answer all polls with an error."""
        for poll in tuple(self._all):
            poll.fail(error)
            self.remove(poll)

    def close(self) -> None:
        """Answer all polls without instances; polls that arrive later are answered at once."""
        self._closed = True
        for poll in tuple(self._all):
            poll.assign([])
            self.remove(poll)

    def suitable(
        self, namespace_id: int, placement_id: int, target: UUID | None = None
    ) -> Collection[WaitingPoll]:
        """Return the polls that may run instances of a placement class, in the order of their arrival.

        `target`: the instances are bound to this agent.
        """
        if target is not None:
            return [
                poll
                for poll in self._by_agent.get(target, ())
                if namespace_id in poll.served and self._fits(placement_id, poll.facts)
            ]
        key = (namespace_id, placement_id)
        suitable = self._suitable.get(key)
        if suitable is None:
            polls = self._by_namespace.get(namespace_id, _NO_POLLS)
            suitable = {poll: None for poll in polls if self._fits(placement_id, poll.facts)}
            self._suitable[key] = suitable
            if len(self._suitable) > _MOST_CLASSES:
                self._suitable.popitem(last=False)
        self._suitable.move_to_end(key)
        return suitable.keys()

    def new_polls(self) -> list[WaitingPoll]:
        """Return the polls that no round has considered yet."""
        return list(self._new)

    def check_again(self, poll: WaitingPoll, at: float) -> None:
        """Check a repeated poll for earlier reservations a second time; calls come in the order of time."""
        self._second_checks.append((at, poll))

    @property
    def next_check(self) -> float | None:
        return self._second_checks[0][0] if self._second_checks else None

    def to_check(self, new_polls: Collection[WaitingPoll], now: float) -> list[WaitingPoll]:
        """Return the repeated polls for whose requests instances may be reserved already."""
        again = [poll for _, poll in takewhile(lambda check: check[0] <= now, self._second_checks)]
        return [poll for poll in new_polls if poll.repeated] + [
            poll for poll in again if not (poll.new or poll.answer.done())
        ]

    def note_round(self, new_polls: Collection[WaitingPoll], began: float) -> None:
        """A round has considered these new polls, and made the checks that were due when it began."""
        while self._second_checks and self._second_checks[0][0] <= began:
            self._second_checks.popleft()
        for poll in new_polls:
            self._new.pop(poll, None)
            poll.note_round()


def _discard(index: dict[K, dict[WaitingPoll, None]], key: K, poll: WaitingPoll) -> None:
    members = index.get(key)
    if members is not None:
        members.pop(poll, None)
        if not members:
            del index[key]


class DirectHandoff:
    """Assigns a new instance to a waiting poll as it is created: no round, and one transaction less.

    The block inserts the instance, reserved for `recipient`, and sets `created`. When the block ends, the
    instance is delivered to the poll; without an instance, the poll waits again. The poll is not among the
    waiting polls meanwhile, so that no round assigns anything to it.
    """

    def __init__(
        self,
        poll: WaitingPoll,
        waiting_polls: WaitingPolls,
        *,
        charge: Callable[[int, int], None],
        release: Callable[[Sequence[Claimed]], Awaitable[None]],
    ) -> None:
        self._poll = poll
        self._waiting_polls = waiting_polls
        self._charge = charge
        self._release = release
        self.created: Claimed | None = None
        # The poll has answered its agent with the instance.
        self.delivered = False

    @property
    def agent(self) -> str | None:
        """The name of the agent."""
        return self._poll.name

    @property
    def recipient(self) -> Recipient:
        return self._poll.recipient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.created is None:
            if not self._poll.answer.done():
                # The transaction that failed may have been committed: check for a reservation.
                self._poll.repeated = True
                self._waiting_polls.add(self._poll)
            return
        self._charge(self.created.namespace_id, 1)
        if self._poll.answer.done():
            await self._return(self.created)
        else:
            self.delivered = await self._poll.deliver(self.created)

    async def _return(self, instance: Claimed) -> None:
        """Release the instance: the poll has ended meanwhile, which is not a failure of the creator."""
        try:
            await self._release([instance])
        except Exception as error:  # noqa: BLE001 - the reservation expires by itself
            log.warning(
                "assigned instance not released, agent disconnected",
                instance=str(instance.id),
                error=str(error),
            )
