"""Rescue: claims whose time has run out go back to the queue or end as lost; tasks end at their deadline."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import structlog

from hetuflow_core.jobfile.leases import SHORTEST_LEASE
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.postgres.database import Connection, Database, Lane
from hetuflow_server.queue import store, tasks_store as task_store, transitions
from hetuflow_server.queue.end_decisions import DEADLINE
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.rows import Ending

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.rescuer")

_BATCH = 200
# Not at every look, which would be a write a second for each namespace; and within half of every lease, so
# that nothing is an outage for anybody where a note is younger.
_NOTED_EVERY: Final = SHORTEST_LEASE / 2
# Of so many extensions it is known when they were.
_REMEMBERED: Final = 1_000


class Rescuer:
    """An owner's duty."""

    def __init__(self, database: Database, ownership: Ownership, finisher: Finisher, hints: Hints) -> None:
        self._database = database
        self._ownership = ownership
        self._finisher = finisher
        self._hints = hints
        # By namespace, and by the clock of the database: when this server last looked, which is more often
        # than it writes it down, and when it last extended leases.
        self._looked: dict[int, datetime] = {}
        self._extended: defaultdict[int, deque[datetime]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))

    async def look(self, namespaces: Sequence[int]) -> list[int]:
        """Return which of them need rescue, with one query for all; note now and then that one has looked."""
        async with self._database.batched_reading(lane=Lane.INDEX_ORDER) as connection:
            found = await store.look_for_rescue(connection, namespaces)
        if stale := [one.namespace_id for one in found if one.needed or one.at - one.noted_at > _NOTED_EVERY]:
            async with self._ownership.transaction(*stale) as connection:
                extended = await self._note(connection, stale)
            for namespace_id, at in extended.items():
                self._extended[namespace_id].append(at)
        # Not before: what was to be extended and could not be written is still to be extended.
        self._looked = {one.namespace_id: one.at for one in found}
        return [one.namespace_id for one in found if one.needed]

    async def _note(self, connection: Connection, namespaces: Sequence[int]) -> dict[int, datetime]:
        """Extend leases where nobody has looked for too long; return where that was, and when."""
        extended = {}
        for namespace_id, note in (await store.note_rescue(connection, namespaces)).items():
            away = note.at - max(note.before, self._looked.get(namespace_id, note.before))
            if away <= _NOTED_EVERY:
                continue
            leases = await store.extend_after_outage(
                connection, namespace_id, note.at, away, self._extended[namespace_id]
            )
            if leases:
                extended[namespace_id] = note.at
                log.warning("Leases were extended after an outage.", leases=leases, away=away.total_seconds())
        return extended

    async def run_once(self, namespace_id: int) -> int:
        """Rescue what `look` has found."""
        async with self._ownership.transaction(namespace_id) as connection:
            released = await self._finisher.release_expired(connection, namespace_id, _BATCH)
        if released.ended:
            log.info("Expired reservations were released.", count=len(released.ended))
            self._hints.give(released.hints)
        return (
            len(released.ended)
            + await self._end_expired(namespace_id)
            + await self._end_overdue(namespace_id)
        )

    async def _end_expired(self, namespace_id: int) -> int:
        async with self._ownership.transaction(namespace_id) as connection:
            expired = await store.expired(connection, namespace_id, _BATCH)
            if not expired:
                return 0
            live = await task_store.live_instances(connection, ids=expired)
            running = [id_ for id_, instance in live.items() if instance.status == InstanceStatus.RUNNING]
            lost = await self._finisher.settle(
                connection,
                [Ending(id_, None, InstanceStatus.LOST, reason="lease_expired") for id_ in running],
                transitions.lose,
            )
        # A transaction of its own: the first has locked limits, and this one locks tasks and instances.
        async with self._ownership.transaction(namespace_id) as connection:
            cancelled = await self._finisher.settle(
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
        async with self._ownership.transaction(namespace_id) as connection:
            overdue = await store.overdue(connection, namespace_id, _BATCH)
            if not overdue:
                return 0
            await self._finisher.lock_tasks(connection, overdue)
            live = await task_store.live_instances(connection, tasks=overdue)
            # A task that was cancelled before its deadline stays cancelled.
            tasks = {id_: instance.task_id for id_, instance in live.items() if not instance.cancel_requested}
            marked = await transitions.mark_overdue(connection, sorted(set(tasks.values())))
            ending = [id_ for id_, task_id in tasks.items() if task_id in marked]
            ended = await self._finisher.cancel(connection, sorted(ending), DEADLINE)
        self._hints.give(ended.hints)
        if ended.ended or ended.asked:
            log.info("Tasks reached their deadline.", waiting=len(ended.ended), running=len(ended.asked))
        return len(ended.ended) + len(ended.asked)
