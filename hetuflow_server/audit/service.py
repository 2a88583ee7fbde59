"""The audit trail for those who read it, and denials for those who write it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import structlog
from cachetools import LRUCache

from hetuflow_core.errors import DatabaseUnusable
from hetuflow_core.resources.audit import AuditChain, AuditEntry
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.audit import store
from hetuflow_server.audit.store import AuditFilter
from hetuflow_server.postgres.connection import Lane
from hetuflow_server.postgres.database import Database
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.requests.context import RequestContext

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.audit")

# Denials of one source, and of all, that are written down per minute; the rest is counted.
_PER_SOURCE = 20
_IN_ALL = 200
_MINUTE = 60.0
_MOST_SOURCES = 10_000


class AuditTrail:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def entries(
        self,
        context: RequestContext,
        wanted: AuditFilter,
        namespace: str | None,
        *,
        before: UUID | None,
        limit: int,
    ) -> tuple[list[AuditEntry], UUID | None]:
        """Return entries of the namespaces whose trail one may read, and behind which one to go on."""
        reached = replace(wanted, namespaces=context.reach(namespace))
        async with self._database.transaction(context, lane=Lane.INDEX_ORDER) as connection:
            return await store.list_entries(connection, reached, before=before, limit=limit)

    async def chain(self, after: int, limit: int) -> AuditChain:
        """Return the next links of the chain, for whoever wants to check it."""
        async with self._database.transaction() as connection:
            entries, tombstones, head = await store.chain(connection, after, limit)
        return AuditChain(entries, tombstones, head.seq, head.hash.hex())


class Denials:
    """Writes down what was refused, in transactions of their own and no more than so many."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._minute = 0
        self._counts: dict[str, int] = {}
        self._total = 0
        # Not written down since the last that was, by source.
        self._unwritten: LRUCache[str, int] = LRUCache(_MOST_SOURCES)

    async def note(self, audit: AuditContext, status: int) -> None:
        source = audit.source or "?"
        if not self._may_write(source):
            self._unwritten[source] = self._unwritten.get(source, 0) + 1
            return
        detail: dict[str, object] = {"status": status}
        unwritten = self._unwritten.pop(source, 0)
        if unwritten:
            detail["unwritten"] = unwritten
        try:
            async with self._database.transaction() as connection:
                await store.record_denial(connection, audit, detail)
        except DatabaseUnusable as error:
            log.warning("A denial could not be written down.", action=audit.action, error=error.message)

    def _may_write(self, source: str) -> bool:
        minute = int(self._clock.monotonic() // _MINUTE)
        if minute != self._minute:
            self._minute, self._total = minute, 0
            self._counts.clear()
        count = self._counts.get(source, 0)
        if count >= _PER_SOURCE or self._total >= _IN_ALL:
            return False
        self._counts[source] = count + 1
        self._total += 1
        return True
