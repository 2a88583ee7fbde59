"""Claiming: a poll is answered as soon as there is work or a cancel, or with nothing when its time is up."""

from __future__ import annotations

from datetime import timedelta

from hetuflow_core import ids, messages as m
from hetuflow_core.placement import AgentFacts, parse_taint
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.states import AgentStatus
from hetuflow_server.services.access import AgentCredential
from hetuflow_server.services.agent_sessions import POLL_WAIT, AgentSessions
from hetuflow_server.services.assignments import Assignments
from hetuflow_server.services.dispatcher import Asker, Dispatcher
from hetuflow_server.store.agents import AgentSession

_MOST_PREFETCH = timedelta(seconds=5)
_MOST_PER_POLL = 500


class Claiming:
    def __init__(
        self,
        sessions: AgentSessions,
        dispatcher: Dispatcher,
        assignments: Assignments,
        clock: Clock,
    ) -> None:
        self._sessions = sessions
        self._dispatcher = dispatcher
        self._assignments = assignments
        self._clock = clock

    async def poll(self, credential: AgentCredential, asked: m.Poll) -> m.Polled:
        session = await self._sessions.current(credential, asked.session_id)
        wait = min(timedelta(milliseconds=max(0, asked.wait_ms)), POLL_WAIT)
        free = min(asked.free_slots, session.slots, _MOST_PER_POLL)
        asker = Asker(
            facts=_facts(session),
            session_id=asked.session_id,
            request_id=asked.request_id,
            served=frozenset(
                id_ for name, id_ in credential.namespaces.items() if name in session.capabilities.namespaces
            ),
            free=free if session.status == AgentStatus.ONLINE else 0,
            slots=session.slots,
            prefetch=min(timedelta(milliseconds=max(0, asked.prefetch_ms)), _MOST_PREFETCH),
        )
        dealt = await self._dispatcher.ask(asker, wait.total_seconds())
        assignments = await self._assignments.make(dealt.claimed, dealt.params)
        cancels = [m.Cancel(*cancel) for cancel in dealt.cancels]
        return m.Polled(ids.milliseconds(self._clock.now()), assignments, cancels)


def _facts(session: AgentSession) -> AgentFacts:
    """What placement looks at; another registration makes another version of it."""
    said = session.capabilities
    return AgentFacts(
        agent_id=session.id,
        version=ids.milliseconds(session.registered_at),
        labels=session.labels,
        taints=tuple(map(parse_taint, said.taints)),
        pools=frozenset(said.pools),
        slots=session.slots,
        executors=frozenset(said.executors),
    )
