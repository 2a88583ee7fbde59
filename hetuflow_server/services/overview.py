"""What people see first: is it running, what waits, who works."""

from __future__ import annotations

from hetuflow_core import __version__
from hetuflow_core.resources import QueueSummary, ServerInfo
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.services.principals import Principal
from hetuflow_server.store import agents, overview as store
from hetuflow_server.store.database import Database

_MOST_AGENTS = 500


class Overview:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def info(self) -> ServerInfo:
        state = await self._database.check()
        return ServerInfo(__version__, state.revision or "none", self._clock.now())

    async def status(self, principal: Principal) -> QueueSummary:
        namespaces = principal.reach()
        async with self._database.transaction() as connection:
            counts = await store.queue_counts(connection, namespaces)
            return QueueSummary(
                held=counts.held,
                pending=counts.pending,
                reserved=counts.reserved,
                running=counts.running,
                oldest_due_seconds=counts.oldest_due_seconds,
                failed_last_hour=await store.failed_last_hour(connection, namespaces),
                agents=await agents.summaries(connection, _MOST_AGENTS, namespaces),
            )
