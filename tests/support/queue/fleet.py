"""Agents that are registered and ask for work as the gateway would, without a gateway between."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from hetuflow_core import messages as m
from hetuflow_core.placement import Resources
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.agents.sessions import AgentSessions
from hetuflow_server.gateway import polls
from hetuflow_server.identity.access import AgentCredential
from hetuflow_server.queue.rows import Claimed
from hetuflow_server.queue.waiting_polls import WaitingPoll
from tests.support.queue.claiming_engine import DEFAULT, Engine


class Fleet:
    def __init__(self, engine: Engine, *, require_approval: bool = False) -> None:
        self._engine = engine
        self.sessions = AgentSessions(
            engine.database, engine.hints, engine.finisher, SystemClock(), require_approval=require_approval
        )
        token = uuid4()
        engine.rows.execute(
            "INSERT INTO sched_agent_token (id, name, prefix, digest) VALUES (%s, %s, %s, '\\x00')",
            [token, f"token-{token}", token.hex[:12]],
        )
        self.credential = AgentCredential(token, {"default": DEFAULT})
        self._sessions_of: dict[str, UUID] = {}

    async def register(self, name: str, *, slots: int = 2, again: bool = False, **said: Any) -> UUID:
        """`again`: the same process life, of which something has changed."""
        session = self._sessions_of[name] = self._sessions_of[name] if again else uuid4()
        facts = {
            "executors": ["command"],
            "namespaces": ["default"],
            "resources": Resources(cpu=4, memory=2**30),
        }
        asked = m.Register(
            name=name, session_id=session, slots=slots, version="1", **{"labels": {}, **facts, **said}
        )
        return (await self.sessions.register(self.credential, asked)).agent_id

    def session_of(self, name: str) -> UUID:
        return self._sessions_of[name]

    def forget(self) -> None:
        """Ask the database about sessions again, which are believed for a moment."""
        self.sessions = AgentSessions(
            self._engine.database, self._engine.hints, self._engine.finisher, SystemClock()
        )

    async def poll(self, name: str, *, free: int = 1, left: Resources | None = None) -> list[Claimed]:
        """Ask for work once, as this agent; it says itself what it has free."""
        return await self._engine.poll(await self.waiting_poll(name, free=free, left=left), 0)

    async def waiting_poll(self, name: str, *, free: int = 1, left: Resources | None = None) -> WaitingPoll:
        """Return an agent as it asks for work."""
        session_id = self._sessions_of[name]
        session = await self.sessions.current(self.credential, session_id)
        asked = m.Poll(
            session_id=session_id,
            request_id=uuid4(),
            free_slots=free,
            wait_ms=0,
            prefetch_ms=0,
            free_resources=left,
        )
        return polls._waiting_poll(self.credential, session, asked, repeated=False)
