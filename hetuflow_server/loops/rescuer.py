"""Rescue: claims whose time has run out go back to the queue or end as lost."""

from __future__ import annotations

from datetime import timedelta

import structlog

from hetuflow_core.states import InstanceStatus
from hetuflow_server.services.settling import Settler
from hetuflow_server.store import jobs, queue, tasks as task_store, transitions
from hetuflow_server.store.database import Database
from hetuflow_server.store.transitions import Ending
from hetuflow_server.stream.hints import Hints, namespace_topic

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.rescuer")

_BATCH = 200
# Shorter gaps between two looks are ordinary; longer ones mean that no server was there to hear agents.
_ORDINARY_GAP = timedelta(seconds=5)


class Rescuer:
    def __init__(self, database: Database, settler: Settler, hints: Hints) -> None:
        self._database = database
        self._settler = settler
        self._hints = hints

    async def run_once(self) -> int:
        async with self._database.transaction() as connection:
            namespaces = await jobs.all_namespaces(connection)
        return sum([await self._rescue(namespace_id) for namespace_id in namespaces])

    async def _rescue(self, namespace_id: int) -> int:
        async with self._database.transaction() as connection:
            away = await queue.note_rescue(connection, namespace_id)
            if away > _ORDINARY_GAP:
                extended = await queue.extend_after_outage(connection, namespace_id, away)
                if extended:
                    log.warning(
                        "Leases were extended after an outage.", leases=extended, away=away.total_seconds()
                    )
            released = await transitions.release_expired(connection, namespace_id, _BATCH)
        if released:
            log.info("Expired reservations were released.", count=released)
            self._hints.give([namespace_topic(namespace_id)])
        return released + await self._end_expired(namespace_id)

    async def _end_expired(self, namespace_id: int) -> int:
        async with self._database.transaction() as connection:
            expired = await queue.expired(connection, namespace_id, _BATCH)
            if not expired:
                return 0
            live = await task_store.live_instances(connection, ids=expired)
            running = [id_ for id_, instance in live.items() if instance.status == InstanceStatus.RUNNING]
            lost = await self._settler.settle(
                connection,
                [Ending(id_, None, InstanceStatus.LOST, reason="lease_expired") for id_ in running],
                transitions.lose,
            )
            cancelled = await self._settler.settle(
                connection,
                [
                    Ending(id_, None, InstanceStatus.CANCELLED, reason="cancelled")
                    for id_ in live.keys() - set(running)
                ],
                transitions.cancel_unclaimed,
            )
        self._hints.give(lost.hints | cancelled.hints)
        if lost.ended:
            log.warning("Instances were lost with their agents.", count=len(lost.ended))
        return len(lost.ended) + len(cancelled.ended)
