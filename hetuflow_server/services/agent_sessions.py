"""Agents and their sessions: who is who, and who was heard of."""

from __future__ import annotations

import secrets
from datetime import timedelta
from uuid import UUID

import structlog

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import Denied, Invalid
from hetuflow_core.placement import parse_taint
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.services.access import AgentCredential
from hetuflow_server.store import agents as agent_store, queue, transitions
from hetuflow_server.store.agents import AgentCapabilities, AgentSession
from hetuflow_server.store.database import Database
from hetuflow_server.stream.hints import Hints, namespace_topic

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.gateway")

HEARTBEAT_EVERY = timedelta(seconds=5)
POLL_WAIT = timedelta(seconds=30)
_MOST_SLOTS = 10_000
_LONGEST_NAME = 128
_BELIEVED_SECONDS = 2.0
_MOST_BELIEVED = 50_000


class AgentSessions:
    def __init__(self, database: Database, hints: Hints, clock: Clock) -> None:
        self._database = database
        self._hints = hints
        self._clock = clock
        self._seen: set[UUID] = set()
        self._known: dict[UUID, tuple[float, UUID, AgentSession]] = {}

    async def register(self, credential: AgentCredential, asked: m.Register) -> m.Registered:
        """Make a process life the agent's; what an earlier one had reserved is free again."""
        _check(credential, asked)
        async with self._database.transaction() as connection:
            agent_id = await agent_store.register(
                connection,
                id_=ids.new_id(self._clock.now(), secrets.token_bytes(10)),
                name=asked.name,
                session_id=asked.session_id,
                token_id=credential.token_id,
                labels=asked.labels,
                capabilities=AgentCapabilities(
                    executors=asked.executors,
                    namespaces=asked.namespaces,
                    taints=asked.taints,
                    pools=asked.pools,
                ),
                slots=asked.slots,
                version=asked.version,
            )
            held = [(one.instance_id, one.token) for one in asked.running]
            adopted = await queue.adopt(connection, agent_id, asked.session_id, held) if held else []
            released = await transitions.release_former_sessions(connection, agent_id, asked.session_id)
        self._known = {key: known for key, known in self._known.items() if known[2].id != agent_id}
        if released:
            self._hints.give(map(namespace_topic, credential.namespaces.values()))
        log.info("An agent registered.", agent=asked.name, adopted=len(adopted), released=released)
        return m.Registered(
            agent_id=agent_id,
            server_time=ids.milliseconds(self._clock.now()),
            heartbeat_every=HEARTBEAT_EVERY // timedelta(milliseconds=1),
            poll_wait=POLL_WAIT // timedelta(milliseconds=1),
            adopted=adopted,
        )

    async def current(self, credential: AgentCredential, session_id: UUID) -> AgentSession:
        """Return the agent this session is of; raise Conflict when another one has taken its place.

        Believed for a moment without asking: what a replaced session does meanwhile is guarded by tokens.
        """
        known = self._known.get(session_id)
        if known is None or known[0] < self._clock.monotonic() or known[1] != credential.token_id:
            async with self._database.transaction() as connection:
                session = await agent_store.session(connection, session_id, credential.token_id)
            self._believe(session_id, credential.token_id, session)
        else:
            session = known[2]
        self._seen.add(session.id)
        return session

    def _believe(self, session_id: UUID, token_id: UUID, session: AgentSession) -> None:
        if len(self._known) >= _MOST_BELIEVED:
            self._known.clear()
        self._known[session_id] = (self._clock.monotonic() + _BELIEVED_SECONDS, token_id, session)

    async def flush_seen(self) -> int:
        """Write down who was heard of since the last time, in one statement."""
        seen, self._seen = self._seen, set()
        if seen:
            async with self._database.transaction() as connection:
                await agent_store.seen(connection, sorted(seen))
        return 0


def _check(credential: AgentCredential, asked: m.Register) -> None:
    denied = [name for name in asked.namespaces if name not in credential.namespaces]
    if denied:
        raise Denied(f"The agent's token does not allow the namespace {denied[0]}.")
    if not asked.namespaces:
        raise Invalid("An agent serves at least one namespace.")
    if not 1 <= len(asked.name) <= _LONGEST_NAME:
        raise Invalid(f"An agent's name has 1 to {_LONGEST_NAME} characters.")
    if not 1 <= asked.slots <= _MOST_SLOTS:
        raise Invalid(f"An agent has 1 to {_MOST_SLOTS} slots.")
    for taint in asked.taints:
        parse_taint(taint)
