"""What people look at and decide about agents; what is to be done on the host travels as a command."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import structlog

from hetuflow_core import ids
from hetuflow_core.agent.commands import AgentConfiguration, CommandKind, Shutdown
from hetuflow_core.agent.configuration import check_configuration
from hetuflow_core.errors import Conflict, NotFound
from hetuflow_core.resources.agents import Agent, AgentCommand, AgentDetail, HostSample
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.states import AgentStatus, InstanceStatus
from hetuflow_server.agents import commands_store as command_store, listing_store as directory, usage_store
from hetuflow_server.agents.commands_store import CommandFilter
from hetuflow_server.agents.listing_store import AgentFilter, LockedAgent
from hetuflow_server.agents.usage_store import SampleFilter
from hetuflow_server.cluster.hints import Hints, Topic, agent_topic, daemons_topic, namespace_topic
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.queue import transitions
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.rows import Ending
from hetuflow_server.requests.context import RequestContext

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agents")

_KICKED = "agent_kicked"
_BATCH = 200

A = TypeVar("A", bound=Agent)


class AgentActions:
    def __init__(self, database: Database, hints: Hints, finisher: Finisher, clock: Clock) -> None:
        self._database = database
        self._hints = hints
        self._finisher = finisher
        self._clock = clock

    async def list_agents(
        self, context: RequestContext, wanted: AgentFilter, *, limit: int, cap: int
    ) -> tuple[list[Agent], int]:
        """Return one agent more than asked for, if there is one, and how many there are up to the cap."""
        wanted = replace(wanted, namespaces=context.reach())
        async with self._database.transaction(context) as connection:
            agents = await directory.list_agents(connection, wanted, limit + 1)
            total = await directory.count_agents(connection, replace(wanted, after=None), cap + 1)
        return [_shown_to(context, one) for one in agents], total

    async def agent(self, context: RequestContext, agent_id: UUID) -> AgentDetail:
        async with self._database.transaction(context) as connection:
            found = await directory.detail(connection, agent_id, namespaces=context.reach())
        if found is None or not _sees(context, found.namespaces):
            raise _no_agent()
        return _shown_to(context, found)

    async def host_samples(
        self, context: RequestContext, wanted: SampleFilter, *, limit: int
    ) -> tuple[list[HostSample], bool]:
        """How busy an agent's host was, the newest first, and whether there is more."""
        await self.agent(context, wanted.agent_id)
        async with self._database.transaction(context) as connection:
            found = await usage_store.samples(connection, wanted, limit + 1)
        return found[:limit], len(found) > limit

    async def approve(self, context: RequestContext, agent_id: UUID) -> AgentDetail:
        """Let an agent that waits for it take work; again is harmless."""
        async with self._database.transaction(context) as connection:
            agent = await self._lock(connection, context, agent_id)
            if agent.status is AgentStatus.PENDING:
                await self._set_status(connection, context, agent_id, _working(agent))
                await self._issue(connection, context, agent_id, CommandKind.RESUME)
        return await self._told(context, agent_id)

    async def drain(self, context: RequestContext, agent_id: UUID) -> AgentDetail:
        """Give an agent no more work; what it has it finishes."""
        async with self._database.transaction(context) as connection:
            await self._lock_approved(connection, context, agent_id)
            await self._set_status(connection, context, agent_id, AgentStatus.DRAINING)
            await self._issue(connection, context, agent_id, CommandKind.DRAIN)
        return await self._told(context, agent_id)

    async def resume(self, context: RequestContext, agent_id: UUID) -> AgentDetail:
        async with self._database.transaction(context) as connection:
            agent = await self._lock_approved(connection, context, agent_id)
            await self._set_status(connection, context, agent_id, _working(agent))
            await self._issue(connection, context, agent_id, CommandKind.RESUME)
        return await self._told(context, agent_id)

    async def kick(self, context: RequestContext, agent_id: UUID, *, lose_running: bool) -> AgentDetail:
        """End an agent's session: its next call is refused, and its process exits.

        What it had reserved is free at once. What it runs keeps its lease, since only the agent knows when
        its processes have ended; `lose_running` gives that to others without waiting.
        """
        async with self._database.transaction(context) as connection:
            await self._lock(connection, context, agent_id)
            await directory.end_session(connection, agent_id)
            context.audit.note_after("agent", agent_id, {"session": None, "lose_running": lose_running})
            released = await self._finisher.release_former_sessions(connection, agent_id, None)
        hints = {agent_topic(agent_id), *released.hints}
        if lose_running:
            hints |= await self._lose_running(context, agent_id)
        found = await self.agent(context, agent_id)
        hints |= await self._namespaces(context, found.namespaces) | await self._daemons(
            context, found.namespaces
        )
        self._hints.give(hints, context)
        log.warning(
            "An agent was kicked.", agent=found.name, by=context.principal.name, lose_running=lose_running
        )
        return found

    async def delete(self, context: RequestContext, agent_id: UUID) -> None:
        """Forget an agent. One that holds work has to be drained or kicked first."""
        async with self._database.transaction(context) as connection:
            agent = await self._lock(connection, context, agent_id)
            if agent.session_id is not None and await directory.holds_work(connection, agent_id):
                raise Conflict(
                    "The agent holds work: drain it and wait, or kick it, then delete it.",
                    code="agent.holds_work",
                )
            await directory.delete(connection, agent_id)
            await usage_store.forget(connection, agent_id)
        self._hints.give([agent_topic(agent_id)], context)

    async def shutdown(self, context: RequestContext, agent_id: UUID, wanted: Shutdown) -> AgentCommand:
        return await self._command(
            context, agent_id, CommandKind.SHUTDOWN, msgspec.to_builtins(wanted), needs_session=True
        )

    async def configure(
        self, context: RequestContext, agent_id: UUID, wanted: AgentConfiguration
    ) -> AgentCommand:
        check_configuration(wanted)
        return await self._command(
            context, agent_id, CommandKind.CONFIGURE, msgspec.to_builtins(wanted), needs_session=False
        )

    async def metrics(self, context: RequestContext, agent_id: UUID) -> AgentCommand:
        return await self._command(context, agent_id, CommandKind.METRICS, {}, needs_session=True)

    async def list_commands(
        self, context: RequestContext, wanted: CommandFilter, *, limit: int, cap: int
    ) -> tuple[list[AgentCommand], int]:
        if wanted.agent_id is not None:
            await self.agent(context, wanted.agent_id)
        wanted = replace(wanted, namespaces=context.reach())
        async with self._database.transaction(context) as connection:
            commands = await command_store.list_commands(connection, wanted, limit + 1)
            total = await command_store.count_commands(connection, replace(wanted, before=None), cap + 1)
        return commands, total

    async def command(self, context: RequestContext, command_id: UUID) -> AgentCommand:
        async with self._database.transaction(context) as connection:
            found = await command_store.get(connection, command_id)
        if found is None:
            raise _no_command()
        await self.agent(context, found.agent_id)
        return found

    async def resend(self, context: RequestContext, command_id: UUID) -> AgentCommand:
        """Send a dead command again, as a new one that is carried out even if the agent knew the old one."""
        dead = await self.command(context, command_id)
        kind = CommandKind(dead.kind)
        async with self._database.transaction(context) as connection:
            agent = await self._lock(connection, context, dead.agent_id)
            if kind is CommandKind.DRAIN:
                await self._set_status(connection, context, dead.agent_id, AgentStatus.DRAINING)
            if kind is CommandKind.RESUME:
                await self._set_status(connection, context, dead.agent_id, _working(agent))
            new = await self._issue(connection, context, dead.agent_id, kind, dead.payload)
            if not await command_store.note_resent(connection, command_id, new):
                raise Conflict(
                    "Only a dead command can be sent again, and only once.", code="command.not_dead"
                )
        self._hints.give([agent_topic(dead.agent_id)], context)
        return await self.command(context, new)

    async def _command(
        self,
        context: RequestContext,
        agent_id: UUID,
        kind: CommandKind,
        payload: dict[str, Any],
        *,
        needs_session: bool,
    ) -> AgentCommand:
        async with self._database.transaction(context) as connection:
            agent = await self._lock(connection, context, agent_id)
            if needs_session and agent.session_id is None:
                raise Conflict("The agent is not running: start it first.", code="agent.no_session")
            new = await self._issue(connection, context, agent_id, kind, payload)
        self._hints.give([agent_topic(agent_id)], context)
        return await self.command(context, new)

    async def _lock(self, connection: Connection, context: RequestContext, agent_id: UUID) -> LockedAgent:
        """Hold an agent, which is about to be changed."""
        locked = await directory.lock(connection, agent_id)
        if locked is None:
            raise _no_agent()
        context.audit.note_change("agent", agent_id, before={"status": locked.status})
        return locked

    async def _set_status(
        self, connection: Connection, context: RequestContext, agent_id: UUID, status: AgentStatus
    ) -> None:
        await directory.set_status(connection, agent_id, status)
        context.audit.note_after("agent", agent_id, {"status": status})

    async def _lock_approved(
        self, connection: Connection, context: RequestContext, agent_id: UUID
    ) -> LockedAgent:
        locked = await self._lock(connection, context, agent_id)
        if locked.status is AgentStatus.PENDING:
            raise Conflict("The agent waits for approval: approve it first.", code="agent.pending")
        return locked

    async def _issue(
        self,
        connection: Connection,
        context: RequestContext,
        agent_id: UUID,
        kind: CommandKind,
        payload: dict[str, Any] | None = None,
    ) -> UUID:
        new = ids.new_id(self._clock.now(), secrets.token_bytes(10))
        context.audit.note_change(
            "agent_command", new, after={"agent": agent_id, "kind": kind, "payload": payload or {}}
        )
        await command_store.issue(
            connection,
            id_=new,
            agent_id=agent_id,
            kind=kind,
            payload=payload or {},
            created_by=context.principal.name,
        )
        return new

    async def _told(self, context: RequestContext, agent_id: UUID) -> AgentDetail:
        found = await self.agent(context, agent_id)
        self._hints.give({agent_topic(agent_id), *await self._daemons(context, found.namespaces)}, context)
        return found

    async def _lose_running(self, context: RequestContext, agent_id: UUID) -> set[Topic]:
        hints: set[Topic] = set()
        while True:
            async with self._database.transaction(context) as connection:
                running = await directory.running_instances(connection, agent_id, _BATCH)
                endings = [Ending(id_, None, InstanceStatus.LOST, reason=_KICKED) for id_ in running]
                context.audit.note_change("agent", agent_id, after={"lost": [str(id_) for id_ in running]})
                settled = await self._finisher.settle(connection, endings, transitions.lose_orphaned)
            hints |= settled.hints
            if not settled.ended:
                return hints

    async def _namespaces(self, context: RequestContext, names: Collection[str]) -> set[Topic]:
        return set(map(namespace_topic, await self._namespace_ids(context, names)))

    async def _daemons(self, context: RequestContext, names: Collection[str]) -> set[Topic]:
        """Whom to tell that daemons may have to leave an agent, or may be on it."""
        return set(map(daemons_topic, await self._namespace_ids(context, names)))

    async def _namespace_ids(self, context: RequestContext, names: Collection[str]) -> list[int]:
        async with self._database.transaction(context) as connection:
            return await directory.namespace_ids(connection, list(names))


def _sees(context: RequestContext, namespaces: Collection[str]) -> bool:
    reached = context.reach()
    if reached is None or not set(reached).isdisjoint(namespaces):
        return True
    context.audit.note_hidden(next(iter(namespaces), ""))
    return False


def _shown_to(context: RequestContext, agent: A) -> A:
    """Return what one may know of an agent: not which namespaces of others it serves."""
    reached = context.reach()
    if reached is None:
        return agent
    return msgspec.structs.replace(agent, namespaces=[one for one in agent.namespaces if one in reached])


def _working(agent: LockedAgent) -> AgentStatus:
    return AgentStatus.OFFLINE if agent.session_id is None else AgentStatus.ONLINE


def _no_agent() -> NotFound:
    return NotFound("There is no such agent.", code="agent.not_found")


def _no_command() -> NotFound:
    return NotFound("There is no such command.", code="command.not_found")
