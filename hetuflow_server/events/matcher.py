"""Matching: events become tasks of the schedules that want them.

Every server does it, each for what it can lock. An event is ticked off in the transaction that makes the
tasks it starts, so that one that is cut off is matched again as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol
from uuid import UUID

import structlog

from hetuflow_core.errors import DatabaseUnusable
from hetuflow_server.cluster.hints import Hints, Topic, namespace_topic
from hetuflow_server.events import matching_store as store
from hetuflow_server.events.match_round import MatchRound
from hetuflow_server.events.matching import EventMatching, wanted_patterns
from hetuflow_server.events.matching_store import TakenEvent
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Connection, Database, Lane
from hetuflow_server.postgres.faults import passing

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.events")

_MOST: Final = 250


class Subscriber(Protocol):
    """Who else wants events: asked in the transaction that ticks them off, before any schedule is locked."""

    async def take(self, connection: Connection, events: Sequence[TakenEvent]) -> Collection[Topic]: ...


class _Changed(Exception):
    """Somebody has edited a schedule between the look and the lock."""


class EventMatcher:
    def __init__(
        self,
        database: Database,
        versions: JobVersions,
        hints: Hints,
        subscribers: Sequence[Subscriber] = (),
    ) -> None:
        self._database = database
        self._versions = versions
        self._hints = hints
        self._subscribers = subscribers
        self._matching = EventMatching()
        self._when_held: Callable[[], None] | None = None
        self._taken: Sequence[UUID] = ()
        # Fewer after a failure, so that one event nobody can cope with does not hold up the others.
        self._most = _MOST
        # Whether there may be events, as far as is known without looking.
        self._expected = True

    def expect(self) -> None:
        """There are events: they need not be looked for."""
        self._expected = True

    def when_held(self, wake: Callable[[], None]) -> None:
        """Call `wake` when a task has been made that may have to wait for an earlier one."""
        self._when_held = wake

    async def run_once(self) -> int:
        """Match some events; return how many."""
        try:
            done = await self._match() if await self._any() else 0
        except _Changed:
            return 1
        except Exception as error:
            if isinstance(error, DatabaseUnusable) or passing(error):
                raise
            if self._most > 1:
                log.warning("Events could not be matched together; fewer are tried.", most=self._most)
                self._most = max(1, self._most // 8)
                return 1
            await self._give_up()
            raise
        self._most = min(_MOST, self._most * 2)
        return done

    async def _any(self) -> bool:
        if self._expected:
            self._expected = False
            return True
        async with self._database.batched_reading(lane=Lane.INDEX_ORDER) as connection:
            return await store.any_to_match(connection)

    async def _match(self) -> int:
        async with self._database.transaction() as connection:
            taken, events = await store.take(connection, self._most)
            self._taken = taken
            if not taken:
                return 0
            topics: set[Topic] = set()
            for subscriber in self._subscribers:
                topics |= set(await subscriber.take(connection, events))
            started = await self._start(connection, events, topics) if events else 0
            await store.tick_off(connection, taken)
        self._expected = True
        self._hints.give(topics)
        log.debug("Events were matched.", events=len(events), tasks=started)
        return len(taken)

    async def _start(self, connection: Connection, events: Sequence[TakenEvent], topics: set[Topic]) -> int:
        found = self._matching.read((await store.waiting(connection, wanted_patterns(events))).values())
        if not found:
            return 0
        matches, mismatches = await self._matching.match(events, found)
        if not matches and not mismatches:
            return 0
        locked = await store.lock(connection, {match.waiting.row.id for match in matches})
        if any(locked.get(match.waiting.row.id) != match.waiting.row.version for match in matches):
            raise _Changed
        round_ = MatchRound(connection, self._versions, await database_time(connection))
        await round_.arrive(matches, mismatches)
        started = await round_.write()
        topics |= {namespace_topic(namespace_id) for namespace_id in round_.namespaces}
        if round_.held and self._when_held is not None:
            self._when_held()
        return started

    async def _give_up(self) -> None:
        """Tick off an event that fails by itself: the error in the log is all that comes of it."""
        async with self._database.transaction() as connection:
            await store.tick_off(connection, self._taken)
        log.error("An event cannot be matched and is given up.", events=list(map(str, self._taken)))
