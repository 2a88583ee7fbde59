"""Polls of agents: answered when there are instances or commands for the agent, or when their time is up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from cachetools import LRUCache

from hetuflow_core import ids, messages as m
from hetuflow_core.placement import Resources, RunningJob, served, takes_work
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.agents.command_delivery import CommandDelivery
from hetuflow_server.agents.sessions import POLL_WAIT, AgentSessions
from hetuflow_server.agents.store import AgentSession
from hetuflow_server.gateway.assignments import Assignments
from hetuflow_server.identity.access import AgentCredential
from hetuflow_server.queue.dispatcher import Dispatcher
from hetuflow_server.queue.waiting_polls import WaitingPoll

_MOST_PREFETCH = timedelta(seconds=5)
_MOST_PER_POLL = 500
# How many instances an agent that runs short tasks may queue in addition to its slots.
_MOST_AHEAD = 256
_MOST_SESSIONS = 50_000


class Polls:
    def __init__(
        self,
        sessions: AgentSessions,
        dispatcher: Dispatcher,
        assignments: Assignments,
        command_delivery: CommandDelivery,
        clock: Clock,
    ) -> None:
        self._sessions = sessions
        self._dispatcher = dispatcher
        self._assignments = assignments
        self._command_delivery = command_delivery
        self._clock = clock
        # {session: its last request to this server}
        self._last_requests: LRUCache[UUID, UUID] = LRUCache(_MOST_SESSIONS)

    async def poll(self, credential: AgentCredential, asked: m.Poll) -> m.Polled:
        repeated = self._maybe_repeated(asked)
        wait = min(timedelta(milliseconds=max(0, asked.wait_ms)), POLL_WAIT)
        until = self._clock.monotonic() + wait.total_seconds()
        while True:
            session = await self._sessions.current(credential, asked.session_id)
            # Only for requests that the agent marks as repeated: after a restart the server knows no request,
            # and its next query for pending commands finds those of all agents.
            again = asked.repeated and repeated
            messages = await self._command_delivery.collect(session.id, asked.session_id, again=again)
            left = 0.0 if messages else max(0.0, until - self._clock.monotonic())
            waiting_poll = _waiting_poll(credential, session, asked, repeated=repeated)
            with self._command_delivery.calling(session.id, waiting_poll.dismiss):
                async with self._dispatcher.assignment(waiting_poll, left) as claimed:
                    if claimed or messages or not waiting_poll.dismissed:
                        assignments = await self._assignments.make(claimed)
                        now = ids.milliseconds(self._clock.now())
                        # The gateway writes the response without waiting, so a run that waits for the
                        # delivery continues after the write.
                        return m.Polled(now, assignments, messages.cancels, messages.commands)
            # The session may have ended or changed, or a command came: read both again, and wait on.
            repeated = False

    def _maybe_repeated(self, asked: m.Poll) -> bool:
        """Return whether a request may have been answered before: unless it is known to be new."""
        last = self._last_requests.get(asked.session_id)
        self._last_requests[asked.session_id] = asked.request_id
        return asked.repeated or last is None or last == asked.request_id


def _waiting_poll(
    credential: AgentCredential, session: AgentSession, asked: m.Poll, *, repeated: bool
) -> WaitingPoll:
    free = min(asked.free_slots, session.slots + _MOST_AHEAD, _MOST_PER_POLL)
    return WaitingPoll(
        facts=session.facts,
        session_id=asked.session_id,
        request_id=asked.request_id,
        served=served(credential.namespaces, session.capabilities.namespaces),
        free=free if takes_work(session.status) else 0,
        slots=session.slots,
        prefetch=min(timedelta(milliseconds=max(0, asked.prefetch_ms)), _MOST_PREFETCH),
        name=session.name,
        repeated=repeated,
        free_resources=_free(session, asked),
        running=_by_namespace(credential, asked.running),
    )


def _by_namespace(credential: AgentCredential, running: Sequence[RunningJob]) -> dict[int, list[RunningJob]]:
    jobs: dict[int, list[RunningJob]] = {}
    for job in running:
        namespace_id = credential.namespaces.get(job.namespace)
        if namespace_id is not None:
            jobs.setdefault(namespace_id, []).append(job)
    return jobs


def _free(session: AgentSession, asked: m.Poll) -> Resources:
    """Return the free resources that the agent reports, but never more than it has."""
    capacity = session.capabilities.resources
    if asked.free_resources is None:
        return capacity
    return Resources(
        cpu=min(capacity.cpu, asked.free_resources.cpu),
        memory=min(capacity.memory, asked.free_resources.memory),
        gpu=min(capacity.gpu, asked.free_resources.gpu),
    )
