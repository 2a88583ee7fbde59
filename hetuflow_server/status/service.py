"""What people see first: is it running, what waits, who works, what fails, what is late, what comes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from hetuflow_core import __version__
from hetuflow_core.resources.cluster import ServerInfo
from hetuflow_core.resources.status import NamespaceQueue, QueueSummary
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.agents import store as agent_store
from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.queue import store as queue_store
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.status import store
from hetuflow_server.status.store import Reach

_MOST_AGENTS = 500
_MOST_NAMESPACES = 50
# Work that has been due for so long is late: agents look for work every second.
LATE_AFTER: Final = timedelta(minutes=1)
DEFAULT_MOST: Final = 10


class Overview:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def info(self) -> ServerInfo:
        state = await self._database.check()
        return ServerInfo(__version__, state.revision or "none", self._clock.now())

    async def status(
        self, context: RequestContext, *, late_after: timedelta = LATE_AFTER, most: int = DEFAULT_MOST
    ) -> QueueSummary:
        """Return what is where in the namespaces one may see; `most` items in each list of single things."""
        names = context.reach()
        async with self._database.transaction(context) as connection:
            here = await store.reach(connection, names)
            if here is None:
                return QueueSummary(
                    held=0,
                    pending=0,
                    reserved=0,
                    running=0,
                    oldest_due_seconds=None,
                    failed_last_hour=0,
                    agents=[],
                )
            before = here.now - late_after
            backlog = await queue_store.backlog(connection)
            entries = [entry for entry in backlog if entry.namespace_id in here.names]
            queues = await self._queues(connection, here, entries, late_after)
            ages = [one.oldest_due_seconds for one in queues if one.oldest_due_seconds is not None]
            return QueueSummary(
                held=sum(one.held for one in queues),
                pending=sum(one.pending for one in queues),
                reserved=sum(one.reserved for one in queues),
                running=sum(one.running for one in queues),
                capped=any(one.capped for one in queues),
                oldest_due_seconds=max(ages, default=None),
                failed_last_hour=await store.failed_last_hour(connection, here),
                agents=await agent_store.summaries(connection, _MOST_AGENTS, names),
                agent_counts=await store.agent_counts(connection, names),
                namespaces=queues[:_MOST_NAMESPACES],
                failing=await store.failing(connection, here, most),
                late=await store.late(connection, here, entries, before, most),
                late_schedules=await store.count_behind(connection, here, before),
                coming=await store.coming(connection, here, entries, most),
            )

    async def _queues(
        self, connection: Connection, here: Reach, entries: Sequence[BacklogEntry], late_after: timedelta
    ) -> list[NamespaceQueue]:
        """Return the namespaces with anything in their queue, the one that waits longest first."""
        counts = await store.counts(connection, here)
        oldest = await store.oldest_due(connection, entries, here.now)
        late = await store.count_late(connection, entries, here.now - late_after)
        found = [
            NamespaceQueue(
                namespace=here.names[id_],
                held=one.held,
                pending=one.pending,
                reserved=one.reserved,
                running=one.running,
                capped=one.capped,
                oldest_due_at=oldest.get(id_),
                oldest_due_seconds=(here.now - oldest[id_]).total_seconds() if id_ in oldest else None,
                late=late.get(id_, 0),
            )
            for id_, one in counts.items()
            if one.held or one.pending or one.reserved or one.running
        ]
        return sorted(found, key=lambda one: (-(one.oldest_due_seconds or -1.0), one.namespace))
