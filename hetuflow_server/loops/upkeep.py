"""Upkeep: partitions ahead of time, strays filed, expired history dropped."""

from __future__ import annotations

from datetime import timedelta

import structlog

from hetuflow_core.runtime.clock import Clock
from hetuflow_server.store.database import Database
from hetuflow_server.store.expiry import delete_expired
from hetuflow_server.store.partitions import (
    HISTORY,
    LOG_CHUNKS,
    LOG_LENGTHS,
    TASKS,
    GaveWay,
    Partitions,
    days_wanted,
)

log = structlog.get_logger("hetuflow.upkeep")

_MOST_STRAY_DAYS = 10


class Upkeep:
    """One round over all partitioned tables; a round that changed something is followed by another."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        keep_tasks: timedelta,
        keep_logs: timedelta,
        ahead: timedelta,
    ) -> None:
        self._database = database
        self._clock = clock
        self._ahead = ahead
        self._keep_tasks = keep_tasks
        self._tables = (
            (Partitions(database, TASKS), keep_tasks),
            (Partitions(database, HISTORY), keep_tasks),
            (Partitions(database, LOG_LENGTHS), keep_logs),
            (Partitions(database, LOG_CHUNKS), keep_logs),
        )

    async def run_once(self) -> int:
        changed = await delete_expired(self._database, self._clock.now() - self._keep_tasks)
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
