"""Delivery of commands and cancels to agents.

Agents wait in their polls. A hint names the agent there is something for, and a look once a second finds what
no hint told of: one query for all agents, whose cost follows what there is to tell and not how many wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

import msgspec
import structlog

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.agents import commands_store as store
from hetuflow_server.agents.sessions import AgentSessions
from hetuflow_server.cluster.hints import AGENT, Hints, Topic
from hetuflow_server.identity.access import AgentCredential
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.nul_text import json_without_nul, without_nul
from hetuflow_server.queue import store as queue_store

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.commands")

_MOST_ACKNOWLEDGEMENTS = 100
_LARGEST_RESULT = 64 * 1024
_LONGEST_ERROR = 2_000


# How long a cancel that was told is not told again in polls; heartbeats tell it too.
_TOLD_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PendingMessages:
    cancels: list[m.Cancel] = field(default_factory=list)
    commands: list[m.Command] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.cancels or self.commands)


class CommandDelivery:
    def __init__(self, database: Database, hints: Hints, sessions: AgentSessions, clock: Clock) -> None:
        self._database = database
        self._sessions = sessions
        self._clock = clock
        # Agents for whom something may be there; whoever comes next looks.
        self._expected: set[UUID] = set()
        # {token of a cancelled claim: until when its agent is believed to have heard}
        self._told: dict[UUID, float] = {}
        self._callers: defaultdict[UUID, set[Callable[[], None]]] = defaultdict(set)
        hints.listen(self._on_hints)

    @contextmanager
    def calling(self, agent_id: UUID, call: Callable[[], None]) -> Iterator[None]:
        """Have `call` called when there may be something for this agent, now or while the block lasts."""
        self._callers[agent_id].add(call)
        if agent_id in self._expected:
            call()
        try:
            yield
        finally:
            self._callers[agent_id].discard(call)
            if not self._callers[agent_id]:
                del self._callers[agent_id]

    def waits(self, agent_id: UUID) -> bool:
        """Tell whether a poll of this agent waits at this server."""
        return agent_id in self._callers

    async def collect(self, agent_id: UUID, session_id: UUID, *, again: bool = False) -> PendingMessages:
        """Return what an agent is to end and to do. `again`: it may not have heard what it was told last.

        A command is delivered again after a while unless it is acknowledged.
        """
        if agent_id not in self._expected and not again:
            return PendingMessages()
        # Before looking: what comes meanwhile is looked for again.
        self._expected.discard(agent_id)
        async with self._database.transaction() as connection:
            cancels = (await queue_store.cancels_for(connection, [agent_id])).get(session_id, [])
            due = await store.deliver(connection, agent_id)
        now = self._clock.monotonic()
        untold = [one for one in cancels if again or self._told.get(one[1], 0.0) <= now]
        self._told.update((token, now + _TOLD_SECONDS) for _, token in untold)
        return PendingMessages(
            [m.Cancel(instance_id, token) for instance_id, token in untold],
            [m.Command(command.id, command.kind, command.payload) for command in due],
        )

    async def commands(self, agent_id: UUID) -> list[m.Command]:
        """Return what an agent is to do, for a heartbeat, which tells cancels by itself."""
        if agent_id not in self._expected:
            return []
        async with self._database.transaction() as connection:
            due = await store.deliver(connection, agent_id)
        return [m.Command(command.id, command.kind, command.payload) for command in due]

    async def look(self) -> int:
        """Give up what nobody answered, and call those for whom there is something."""
        self._expected.clear()
        async with self._database.batched_reading() as connection:
            found, overdue = await store.expected(connection)
            cancelled = await queue_store.cancelled_claims(connection)
        if overdue:
            await self._give_up()
        now = self._clock.monotonic()
        self._told = {token: until for token, until in self._told.items() if until > now}
        self._call(found | {agent_id for agent_id, token in cancelled if token not in self._told})
        return 0

    async def _give_up(self) -> None:
        async with self._database.transaction() as connection:
            dead = await store.give_up(connection)
        for command_id, agent_id, kind in dead:
            log.warning("A command was given up.", command=str(command_id), agent=str(agent_id), kind=kind)

    async def acknowledge(
        self, credential: AgentCredential, asked: m.Acknowledgements
    ) -> m.AcknowledgementsTaken:
        session = await self._sessions.current(credential, asked.session_id)
        # Whatever an answer says, its command has been carried out: it must not come again for that.
        answers = [
            (one.command_id, json_without_nul(msgspec.json.encode(one.result)), without_nul(one.error))
            for one in asked.acknowledgements
        ]
        _check(answers)
        if answers:
            async with self._database.transaction() as connection:
                await store.acknowledge(connection, session.id, answers)
        return m.AcknowledgementsTaken(ids.milliseconds(self._clock.now()))

    def _on_hints(self, topics: Collection[Topic], *, relayed: bool) -> None:  # noqa: ARG002 - all alike
        self._call([t.id for t in topics if t.kind == AGENT and isinstance(t.id, UUID)])

    def _call(self, agents: Collection[UUID]) -> None:
        self._expected.update(agents)
        for agent_id in agents:
            for call in tuple(self._callers.get(agent_id, ())):
                call()


def _check(answers: Collection[tuple[UUID, str, str | None]]) -> None:
    faults = []
    if len(answers) > _MOST_ACKNOWLEDGEMENTS:
        faults.append(Fault("acknowledgements", f"may be at most {_MOST_ACKNOWLEDGEMENTS}"))
    for place, (_, result, error) in enumerate(answers):
        if len(result) > _LARGEST_RESULT:
            faults.append(Fault(f"acknowledgements[{place}].result", f"exceeds {_LARGEST_RESULT} bytes"))
        if error is not None and not 1 <= len(error) <= _LONGEST_ERROR:
            faults.append(Fault(f"acknowledgements[{place}].error", f"has 1 to {_LONGEST_ERROR} characters"))
    if faults:
        raise Invalid("These acknowledgements cannot be accepted.", faults=faults)
