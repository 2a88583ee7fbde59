"""Agents and their sessions: who is who, and who was heard of."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

import msgspec
import structlog

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import Conflict, Denied, Invalid
from hetuflow_core.placement import parse_taint
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.states import AgentStatus
from hetuflow_server.agents import commands_store, store as agent_store, usage_store
from hetuflow_server.agents.eviction import Eviction
from hetuflow_server.agents.store import AgentCapabilities, AgentSession
from hetuflow_server.agents.usage import HostSamples
from hetuflow_server.cluster.hints import AGENT, Hints, Topic, agent_topic, daemons_topic
from hetuflow_server.identity.access import AgentCredential
from hetuflow_server.postgres.coalescing import Coalescer
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue import store as queue_store
from hetuflow_server.queue.finish import Finisher

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.gateway")

HEARTBEAT_EVERY = timedelta(seconds=5)
POLL_WAIT = timedelta(seconds=30)
_MOST_SLOTS = 10_000
_LONGEST_NAME = 128
_BELIEVED_SECONDS = 2.0
_MOST_BELIEVED = 50_000
_MOST_READ = 500


class AgentSessions:
    def __init__(
        self,
        database: Database,
        hints: Hints,
        finisher: Finisher,
        clock: Clock,
        *,
        require_approval: bool = False,
    ) -> None:
        self._database = database
        self._hints = hints
        self._finisher = finisher
        self._clock = clock
        self._eviction = Eviction(database, hints, finisher)
        self._newcomer = AgentStatus.PENDING if require_approval else AgentStatus.ONLINE
        self._seen: set[UUID] = set()
        self._hosts: dict[UUID, m.HostUsage] = {}
        self._samples = HostSamples()
        self._known: dict[UUID, tuple[float, UUID, AgentSession]] = {}
        # {agent: its session in `_known`}
        self._session_of: dict[UUID, UUID] = {}
        # Agents that come at the same time are looked up together.
        self._reading = Coalescer("sessions", self._read, most=_MOST_READ, weigh=lambda _: 1)
        hints.listen(self._on_hints)

    async def register(self, credential: AgentCredential, asked: m.Register) -> m.Registered:
        """Make a process life the agent's; what an earlier one had reserved is free again."""
        _check(credential, asked)
        async with self._database.transaction() as connection:
            await commands_store.end_outlived(connection, asked.name, asked.session_id)
            agent_id, status = await agent_store.register(
                connection,
                id_=ids.new_id(self._clock.now(), secrets.token_bytes(10)),
                name=asked.name,
                session_id=asked.session_id,
                token_id=credential.token_id,
                labels=asked.labels,
                capabilities=AgentCapabilities(
                    executors=asked.executors,
                    run_as=asked.run_as,
                    namespaces=asked.namespaces,
                    taints=asked.taints,
                    pools=asked.pools,
                    resources=asked.resources,
                    limit_means=asked.limit_means,
                ),
                slots=asked.slots,
                version=asked.version,
                newcomer=self._newcomer,
            )
            held = [(one.instance_id, one.token) for one in asked.running]
            adopted = await queue_store.adopt(connection, agent_id, asked.session_id, held) if held else []
            released = await self._finisher.release_former_sessions(connection, agent_id, asked.session_id)
        # Its former session waits somewhere, and hears of it at once; daemons may want to be on it.
        served = [id_ for name, id_ in credential.namespaces.items() if name in asked.namespaces]
        news = {agent_topic(agent_id), *released.hints, *map(daemons_topic, served)}
        self._hints.give(news)
        evicted = await self._eviction.evict(agent_id, [parse_taint(taint) for taint in asked.taints])
        log.info(
            "An agent registered.",
            agent=asked.name,
            status=status.value,
            adopted=len(adopted),
            released=len(released.ended),
            evicted=evicted,
        )
        return m.Registered(
            agent_id=agent_id,
            server_time=ids.milliseconds(self._clock.now()),
            heartbeat_every=HEARTBEAT_EVERY // timedelta(milliseconds=1),
            poll_wait=POLL_WAIT // timedelta(milliseconds=1),
            adopted=adopted,
            status=status.value,
        )

    async def current(self, credential: AgentCredential, session_id: UUID) -> AgentSession:
        """Return the agent this session is of; raise Conflict when another one has taken its place.

        Believed for a moment without asking: what a replaced session does meanwhile is guarded by tokens.
        """
        known = self._known.get(session_id)
        if known is None or known[0] < self._clock.monotonic() or known[1] != credential.token_id:
            found = await self._reading.ask((session_id, credential.token_id))
            if found is None:
                raise Conflict(
                    "Another session of this agent has taken its place, or it never registered.",
                    code="agent.session_replaced",
                )
            session = found
            self._believe(session_id, credential.token_id, session)
        else:
            session = known[2]
        self._seen.add(session.id)
        return session

    async def _read(self, wanted: Sequence[tuple[UUID, UUID]]) -> list[AgentSession | None]:
        async with self._database.single() as connection:
            found = await agent_store.sessions(connection, [session_id for session_id, _ in wanted])
        return [found.get(one) for one in wanted]

    def _believe(self, session_id: UUID, token_id: UUID, session: AgentSession) -> None:
        if len(self._known) >= _MOST_BELIEVED:
            self._known.clear()
            self._session_of.clear()
        self._session_of[session.id] = session_id
        self._known[session_id] = (self._clock.monotonic() + _BELIEVED_SECONDS, token_id, session)

    def _on_hints(self, topics: Collection[Topic], *, relayed: bool) -> None:  # noqa: ARG002 - all alike
        """Ask anew about agents of whom there is news: one may have been drained, kicked or replaced."""
        for topic in topics:
            if topic.kind == AGENT and isinstance(topic.id, UUID):
                session_id = self._session_of.pop(topic.id, None)
                if session_id is not None:
                    self._known.pop(session_id, None)

    def note_host(self, agent_id: UUID, usage: m.HostUsage) -> None:
        """Have written down how busy an agent's host is."""
        self._hosts[agent_id] = usage
        self._samples.note(agent_id, usage)

    async def flush_seen(self) -> int:
        """Write down who was heard of since the last time, in one statement, and how busy their hosts are.

        Once a minute also how busy they were within it.
        """
        hosts, self._hosts = self._hosts, {}
        if hosts:
            async with self._database.transaction() as connection:
                await agent_store.note_hosts(
                    connection, [(id_, msgspec.json.encode(one).decode()) for id_, one in hosts.items()]
                )
        if (kept := self._samples.take(self._clock.now())) is not None:
            async with self._database.transaction() as connection:
                await usage_store.keep(connection, *kept)
        seen, self._seen = self._seen, set()
        if seen:
            async with self._database.transaction() as connection:
                await agent_store.seen(connection, seen)
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
    if min(asked.resources.cpu, asked.resources.memory, asked.resources.gpu) < 0:
        raise Invalid("An agent has no less than nothing of its resources.")
