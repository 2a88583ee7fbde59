"""Rescue: claims whose time has run out go back to the queue or end as lost; tasks end at their deadline."""

from __future__ import annotations

from datetime import timedelta

import structlog

from hetuflow_core.states import InstanceStatus
from hetuflow_server.services.settling import DEADLINE, Settler
from hetuflow_server.store import jobs, queue, tasks as task_store, transitions
from hetuflow_server.store.database import Database
from hetuflow_server.store.records import Ending
from hetuflow_server.stream.hints import Hints, agent_topic, namespace_topic

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
        return released + await self._end_expired(namespace_id) + await self._end_overdue(namespace_id)

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

    async def _end_overdue(self, namespace_id: int) -> int:
        """Fail what still waits at its deadline; ask the agents of what runs to end it."""
        async with self._database.transaction() as connection:
            overdue = await queue.overdue(connection, namespace_id, _BATCH)
            if not overdue:
                return 0
            await task_store.lock_tasks(connection, overdue)
            live = await task_store.live_instances(connection, tasks=overdue)
            # What somebody cancelled before its deadline was reached stays cancelled.
            wanted = {id_: one for id_, one in live.items() if not one.cancel_requested}
            marked = await transitions.mark_overdue(connection, sorted({i.task_id for i in wanted.values()}))
            ending = [id_ for id_, one in wanted.items() if one.task_id in marked]
            waiting = await self._settler.settle(
                connection,
                [Ending(id_, None, InstanceStatus.CANCELLED, reason=DEADLINE) for id_ in ending],
                transitions.cancel_unclaimed,
            )
            claimed = sorted(set(ending) - waiting.ended)
            agents = await transitions.request_cancel(connection, claimed) if claimed else {}
        self._hints.give(waiting.hints | {agent_topic(agent) for agent in agents.values()})
        if waiting.ended or agents:
            log.info("Tasks reached their deadline.", waiting=len(waiting.ended), running=len(agents))
        return len(waiting.ended) + len(agents)
