"""Hints: something may have changed, look again. Losing one costs a second, never work."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol
from uuid import UUID

from hetuflow_server.requests.context import RequestContext

NAMESPACE, BACKLOG, AGENT, INSTANCE, DAEMONS = "namespace", "backlog", "agent", "instance", "daemons"
EVENTS = "events"
FLOW = "flow"


class BacklogEntry(NamedTuple):
    """Pending instances of one namespace, placement class and priority, bound to one agent or to none."""

    namespace_id: int
    placement_id: int
    priority: int
    # The only agent that may run them; None: any suitable agent.
    target: UUID | None = None


class Topic(NamedTuple):
    kind: str
    id: int | UUID | BacklogEntry


def namespace_topic(namespace_id: int) -> Topic:
    """New or returned work in a namespace."""
    return Topic(NAMESPACE, namespace_id)


def backlog_topic(namespace_id: int, placement_id: int, priority: int) -> Topic:
    """New pending instances of one backlog entry: the dispatcher of this server need not search for it."""
    return Topic(BACKLOG, BacklogEntry(namespace_id, placement_id, priority))


def agent_topic(agent_id: UUID) -> Topic:
    """Something to tell an agent: a cancel."""
    return Topic(AGENT, agent_id)


def instance_topic(instance_id: UUID) -> Topic:
    """An instance's log grew, or it ended."""
    return Topic(INSTANCE, instance_id)


def daemons_topic(namespace_id: int) -> Topic:
    """Something that the daemons of a namespace depend on has changed: its owner looks at them."""
    return Topic(DAEMONS, namespace_id)


def events_topic(namespace_id: int) -> Topic:
    """Something has happened in a namespace that schedules may want."""
    return Topic(EVENTS, namespace_id)


def flow_topic(run_id: UUID) -> Topic:
    """A flow run to begin or to go on with; whoever gives it does the errand on the same server."""
    return Topic(FLOW, run_id)


class Waiter:
    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def wait(self, seconds: float) -> bool:
        """Return True when woken since the last wait, False when the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        woken = self._woken.is_set()
        self._woken.clear()
        return woken


class HintListener(Protocol):
    def __call__(self, topics: Collection[Topic], *, relayed: bool) -> None: ...


class Hints:
    def __init__(self) -> None:
        self._waiters: defaultdict[Topic, set[Waiter]] = defaultdict(set)
        self._listeners: list[HintListener] = []
        self._closed = False

    @property
    def closed(self) -> bool:
        """True once the server is stopping: whoever waits answers at once and goes."""
        return self._closed

    @contextmanager
    def waiting(self, topics: Iterable[Topic]) -> Iterator[Waiter]:
        """Wait on these topics; enter before looking, so that nothing falls between the look and the wait."""
        waiter, wanted = Waiter(), tuple(topics)
        for topic in wanted:
            self._waiters[topic].add(waiter)
        if self._closed:
            waiter.wake()
        try:
            yield waiter
        finally:
            for topic in wanted:
                self._waiters[topic].discard(waiter)
                if not self._waiters[topic]:
                    del self._waiters[topic]

    def listen(self, listener: HintListener) -> None:
        """Call `listener` with all news, for whoever waits on behalf of many."""
        self._listeners.append(listener)

    def give(
        self, topics: Iterable[Topic], context: RequestContext | None = None, *, relayed: bool = False
    ) -> None:
        """Wake the waiters of these topics; call it after the commit that made the change.

        `context`: of the request that made it, whose transaction may still be open. `relayed`: from another
        server.
        """
        news = tuple(topics)
        if news and context is not None:
            context.after_commit(lambda: self._tell(news, relayed=relayed))
        elif news:
            self._tell(news, relayed=relayed)

    def _tell(self, news: Collection[Topic], *, relayed: bool) -> None:
        for listener in self._listeners:
            listener(news, relayed=relayed)
        for topic in news:
            for waiter in self._waiters.get(topic, ()):
                waiter.wake()

    def give_ended(self, instances: Iterable[UUID]) -> None:
        """Wake whoever follows one of these, which have ended; the rest of the news is given with `give`."""
        if self._waiters:
            for instance_id in instances:
                for waiter in self._waiters.get(instance_topic(instance_id), ()):
                    waiter.wake()

    def close(self) -> None:
        self._closed = True
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake()


def wake_on_events(hints: Hints, wake: Callable[[], None]) -> None:
    """Call `wake` when an application's transaction has brought events."""

    def on_news(topics: Collection[Topic], *, relayed: bool) -> None:
        if relayed and any(topic.kind == EVENTS for topic in topics):
            wake()

    hints.listen(on_news)
