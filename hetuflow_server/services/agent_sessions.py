"""Agents and their sessions: who is who, and who was heard of."""

from __future__ import annotations

import secrets
from datetime import timedelta
from uuid import UUID

import structlog

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import Denied, Invalid
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.services.access import AgentCredential
from hetuflow_server.store import agents as agent_store, queue, transitions
from hetuflow_server.store.agents import AgentSession
from hetuflow_server.store.database import Database
from hetuflow_server.stream.hints import Hints, namespace_topic

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.gateway")

HEARTBEAT_EVERY = timedelta(seconds=5)
POLL_WAIT = timedelta(seconds=30)
_MOST_SLOTS = 10_000
_LONGEST_NAME = 128


class AgentSessions:
    def __init__(self, database: Database, hints: Hints, clock: Clock) -> None:
        self._database = database
        self._hints = hints
        self._clock = clock
        self._seen: set[UUID] = set()

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
                executors=asked.executors,
                namespaces=asked.namespaces,
                slots=asked.slots,
                version=asked.version,
            )
            held = [(one.instance_id, one.token) for one in asked.running]
            adopted = await queue.adopt(connection, agent_id, asked.session_id, held) if held else []
            released = await transitions.release_former_sessions(connection, agent_id, asked.session_id)
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
        """Return the agent this session is of; raise Conflict when another one has taken its place."""
        async with self._database.transaction() as connection:
            session = await agent_store.session(connection, session_id, credential.token_id)
        self._seen.add(session.id)
        return session

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
