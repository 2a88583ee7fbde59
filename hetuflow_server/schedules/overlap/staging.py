"""Staging: fires that wait for each other are decided about when due; what was left waiting goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

import structlog

from hetuflow_core.runtime.timers import Alarm, Timers
from hetuflow_core.schedule.overlap import AHEAD
from hetuflow_server.cluster.hints import Hints, Topic, instance_topic, namespace_topic
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Connection, Database, Lane
from hetuflow_server.queue import transitions
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.schedules.backfills import store as backfill_store
from hetuflow_server.schedules.backfills.fires import BackfillFires
from hetuflow_server.schedules.overlap import service, store
from hetuflow_server.schedules.overlap.service import OVERLAP, Decided

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.staging")

_BATCH = 500


class Staging:
    """An owner's duty."""

    def __init__(
        self,
        database: Database,
        ownership: Ownership,
        finisher: Finisher,
        backfill_fires: BackfillFires,
        hints: Hints,
        timers: Timers,
    ) -> None:
        self._database = database
        self._ownership = ownership
        self._finisher = finisher
        self._backfill_fires = backfill_fires
        self._hints = hints
        self._timers = timers
        self._wake: Callable[[], None] | None = None
        self._alarm: Alarm | None = None

    def when_due(self, wake: Callable[[], None]) -> None:
        """Call `wake` at the moment a fire is due that has to be decided about then."""
        self._wake = wake

    async def look(self, namespaces: Sequence[int]) -> list[int]:
        """Return in which of them something waits, with one query for all."""
        async with self._database.batched_reading(lane=Lane.INDEX_ORDER) as connection:
            return await store.waiting_in(connection, namespaces, AHEAD)

    async def run_once(self, namespace_id: int) -> int:
        """Decide about what `look` has found."""
        return await self._decide(namespace_id) + await self._fill(namespace_id)

    async def _decide(self, namespace_id: int) -> int:
        async with self._ownership.transaction(namespace_id) as connection:
            now = await database_time(connection)
            near = await store.near(connection, namespace_id, now + AHEAD, _BATCH)
            stranded = await store.stranded(connection, namespace_id, _BATCH)
            if not near and not stranded:
                return 0
            decided = await service.decide_for(
                connection, [*{one.schedule_id for one in near}, *stranded], found=near
            )
            hints, cancelled = await self._make_way(connection, decided.to_cancel)
        if decided.look_at is not None:
            self._look_in(decided.look_at - now)
        self._hints.give(hints | _hints(namespace_id, decided))
        if decided.skipped or cancelled:
            log.info("Fires overlapped.", skipped=len(decided.skipped), cancelled=cancelled)
        return decided.count + cancelled

    async def _make_way(self, connection: Connection, to_cancel: Sequence[UUID]) -> tuple[set[Topic], int]:
        """End what is under way in locked schedules: what waits at once, what is claimed by its agent."""
        if not to_cancel:
            return set(), 0
        under_way = [one for one in await store.under_way(connection, to_cancel) if not one.cancel_requested]
        if not under_way:
            return set(), 0
        await transitions.mark_overlapped(connection, [one.task_id for one in under_way])
        settled = await self._finisher.cancel(connection, sorted(one.id for one in under_way), OVERLAP)
        return settled.hints, len(settled.ended) + len(settled.asked)

    async def _fill(self, namespace_id: int) -> int:
        """Go on with backfills that whoever ended their last task did not go on with."""
        async with self._ownership.transaction(namespace_id) as connection:
            neglected = await backfill_store.neglected(connection, namespace_id, _BATCH)
            if not neglected:
                return 0
            hints = await self._backfill_fires.fill(connection, neglected)
        self._hints.give(hints)
        return len(neglected)

    def _look_in(self, delay: timedelta) -> None:
        if self._wake is None:
            return
        deadline = self._timers.clock.boottime() + max(0.0, delay.total_seconds())
        if self._alarm is not None:
            if self._timers.clock.boottime() < self._alarm.deadline <= deadline:
                return
            self._alarm.cancel()
        self._alarm = self._timers.set(deadline, self._wake)


def _hints(namespace_id: int, decided: Decided) -> set[Topic]:
    released = {namespace_topic(namespace_id)} if decided.released else set()
    return released | {instance_topic(id_) for id_ in decided.skipped}
