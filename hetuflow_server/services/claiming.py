"""Claiming: a poll looks, waits for hints and looks again until there is work, a cancel, or no time left."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import uuid4

from hetuflow_core import ids, messages as m
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.states import AgentStatus
from hetuflow_server.services.access import AgentCredential
from hetuflow_server.services.agent_sessions import POLL_WAIT, AgentSessions
from hetuflow_server.services.assignments import Assignments
from hetuflow_server.store import queue, transitions
from hetuflow_server.store.agents import AgentSession
from hetuflow_server.store.database import Database
from hetuflow_server.store.transitions import Claimed
from hetuflow_server.stream.hints import Hints, agent_topic, namespace_topic

# Polling is the truth: with every hint lost, work is found within this time.
_LOOK_AGAIN_SECONDS = 1.0
_MOST_PREFETCH = timedelta(seconds=5)
_MOST_PER_POLL = 500


class Claiming:
    def __init__(
        self,
        database: Database,
        hints: Hints,
        sessions: AgentSessions,
        assignments: Assignments,
        clock: Clock,
    ) -> None:
        self._database = database
        self._hints = hints
        self._sessions = sessions
        self._assignments = assignments
        self._clock = clock

    async def poll(self, credential: AgentCredential, asked: m.Poll) -> m.Polled:
        wait = min(timedelta(milliseconds=max(0, asked.wait_ms)), POLL_WAIT)
        deadline = self._clock.monotonic() + wait.total_seconds()
        session = await self._sessions.current(credential, asked.session_id)
        served = frozenset(id_ for name, id_ in credential.namespaces.items() if name in session.namespaces)
        topics = [agent_topic(session.id), *map(namespace_topic, served)]
        # Waiting begins before the first look, so that nothing committed in between is missed.
        with self._hints.waiting(topics) as waiter:
            while True:
                claimed, cancels, next_due = await self._look(served, session, asked)
                assignments = await self._assignments.make(claimed)
                left = deadline - self._clock.monotonic()
                if assignments or cancels or left <= 0 or self._hints.closed:
                    return m.Polled(ids.milliseconds(self._clock.now()), assignments, cancels)
                await waiter.wait(min(left, _LOOK_AGAIN_SECONDS, self._until(next_due, asked)))

    async def _look(
        self,
        served: frozenset[int],
        session: AgentSession,
        asked: m.Poll,
    ) -> tuple[list[Claimed], list[m.Cancel], datetime | None]:
        async with self._database.transaction() as connection:
            cancels = await queue.cancels_for(connection, session.id, asked.session_id)
            want = min(asked.free_slots, session.slots, _MOST_PER_POLL)
            if want <= 0 or session.status != AgentStatus.ONLINE:
                return [], [m.Cancel(*cancel) for cancel in cancels], None
            claimed = await transitions.claimed_before(
                connection,
                session.id,
                asked.session_id,
                asked.request_id,
            )
            heads = [head for head in await queue.heads(connection) if head.namespace_id in served]
            next_due = None
            if heads and not claimed:
                claimed = await transitions.claim(
                    connection,
                    heads=heads,
                    want=want,
                    prefetch=_prefetch(asked),
                    agent_id=session.id,
                    session_id=asked.session_id,
                    request_id=asked.request_id,
                    tokens=[uuid4() for _ in range(want)],
                )
                next_due = None if claimed else await queue.next_due(connection, heads)
        return claimed, [m.Cancel(*cancel) for cancel in cancels], next_due

    def _until(self, next_due: datetime | None, asked: m.Poll) -> float:
        """Return how long until the next instance may be taken."""
        if next_due is None:
            return _LOOK_AGAIN_SECONDS
        return max(0.0, (next_due - _prefetch(asked) - self._clock.now()).total_seconds())


def _prefetch(asked: m.Poll) -> timedelta:
    return min(timedelta(milliseconds=max(0, asked.prefetch_ms)), _MOST_PREFETCH)
