"""Upkeep: partitions ahead of time, strays filed, expired history and what only it needed dropped."""

from __future__ import annotations

from datetime import timedelta

import structlog

from hetuflow_core.runtime.clock import Clock
from hetuflow_server.audit.partitions_store import AUDIT, AuditPartitions
from hetuflow_server.cluster.servers_store import forget as forget_servers
from hetuflow_server.postgres.database import Transactions
from hetuflow_server.postgres.partitions import GaveWay, Partitions, days_wanted
from hetuflow_server.upkeep.expiry_store import MOST_SCHEDULES, delete_expired, delete_gone_schedules
from hetuflow_server.upkeep.partitions_store import (
    ARTIFACT_CHUNKS,
    ARTIFACTS,
    EVENT_EFFECTS,
    EVENTS,
    FLOW_NODES,
    FLOW_RUNS,
    HISTORY,
    LOG_CHUNKS,
    LOG_LENGTHS,
    TASKS,
)
from hetuflow_server.webhooks.signatures import WINDOW
from hetuflow_server.webhooks.store import MOST_FORGOTTEN, forget as forget_messages

log = structlog.get_logger("hetuflow.upkeep")

_MOST_STRAY_DAYS = 10
# How long a server that is gone can still be looked up.
_KEEP_SERVERS = timedelta(days=1)


class Upkeep:
    """A leader's duty: one round over all that expires; one that changed something is followed by another."""

    def __init__(
        self,
        transactions: Transactions,
        clock: Clock,
        *,
        keep_tasks: timedelta,
        keep_logs: timedelta,
        keep_artifacts: timedelta,
        keep_events: timedelta,
        keep_audit: timedelta,
        keep_usage: timedelta,
        ahead: timedelta,
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._ahead = ahead
        self._keep_tasks = keep_tasks
        self._keep_events = keep_events
        self._keep_usage = keep_usage
        self._tables = (
            (Partitions(transactions, TASKS), keep_tasks),
            (Partitions(transactions, HISTORY), keep_tasks),
            (Partitions(transactions, FLOW_NODES), keep_tasks),
            (Partitions(transactions, FLOW_RUNS), keep_tasks),
            (Partitions(transactions, LOG_LENGTHS), keep_logs),
            (Partitions(transactions, LOG_CHUNKS), keep_logs),
            (Partitions(transactions, ARTIFACTS), keep_artifacts),
            (Partitions(transactions, ARTIFACT_CHUNKS), keep_artifacts),
            (Partitions(transactions, EVENTS), keep_events),
            (Partitions(transactions, EVENT_EFFECTS), keep_events),
            (AuditPartitions(transactions, AUDIT), keep_audit),
        )

    async def run_once(self) -> int:
        now = self._clock.now()
        # Something expires at any moment: only as much of it as there may be more of is followed by a round.
        changed = int(
            await delete_expired(
                self._transactions,
                now - self._keep_tasks,
                now - self._keep_events,
                now - self._keep_usage,
            )
        )
        changed += await delete_gone_schedules(self._transactions, now - self._keep_tasks) >= MOST_SCHEDULES
        async with self._transactions.transaction() as connection:
            await forget_servers(connection, _KEEP_SERVERS)
            forgotten = await forget_messages(
                connection, received=now - 2 * WINDOW, dead=now - self._keep_tasks
            )
            changed += forgotten >= MOST_FORGOTTEN
        for partitions, keep in self._tables:
            try:
                changed += await self._keep_up(partitions, keep)
            except GaveWay:
                log.debug("Upkeep gave way to others.", table=partitions.table)
        return changed

    async def _keep_up(self, partitions: Partitions, keep: timedelta) -> int:
        now = self._clock.now()
        created = await partitions.create(days_wanted(now, self._ahead))
        filed = await partitions.empty_default(most_days=_MOST_STRAY_DAYS)
        expired = await partitions.expire(now - keep)
        if created or filed or expired:
            log.info(
                "Upkeep changed something.",
                table=partitions.table,
                created=created,
                filed=filed,
                expired=expired,
            )
        return created + filed + expired
