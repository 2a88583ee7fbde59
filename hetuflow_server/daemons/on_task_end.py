"""The end hook of daemons: record how an instance ended, and start the next one in its slot."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from hetuflow_core.daemon import EndReason, StartInstance, after_end
from hetuflow_core.errors import Invalid
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_server.cluster.hints import Topic, daemons_topic
from hetuflow_server.daemons import store, transitions
from hetuflow_server.daemons.slots import DaemonSlots, NewWork
from hetuflow_server.daemons.store import DaemonRow, EndedInstance
from hetuflow_server.daemons.transitions import SlotEnd
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue.end_hooks import EndHook, TaskEnds


@dataclass(frozen=True, slots=True)
class Successors:
    """The next instances of locked slots, and wake-ups for daemons whose slots stay empty."""

    work: Sequence[NewWork] = ()
    hints: Collection[Topic] = ()


_NONE = Successors()


class DaemonsOnTaskEnd(EndHook):
    cancel_reasons = frozenset(EndReason)

    def __init__(self, slots: DaemonSlots, rng: random.Random) -> None:
        self._slots = slots
        self._rng = rng

    async def lock(self, connection: Connection, ends: TaskEnds, /) -> Successors:
        """Record how instances of daemons ended, and take the next incarnations of their slots."""
        instances = [instance for instance in ends.instances if instance.slot is not None]
        if not instances:
            return _NONE
        ended = await store.ended(connection, [instance.id for instance in instances])
        await self._record(connection, ended)
        slots = {(instance.schedule_id, instance.slot) for instance in ended}
        free = await store.lock_free(connection, sorted({instance.schedule_id for instance in ended}))
        observation = await self._slots.observe(connection, free)
        starts = {
            daemon.row.id: [
                action
                for action in daemon.actions
                if isinstance(action, StartInstance) and (daemon.row.id, action.slot) in slots
            ]
            for daemon in observation.daemons
        }
        work = await self._slots.take(connection, observation, starts)
        refilled = {(task.schedule_id, instance.slot) for task, instance in work}
        # A slot stays empty if the daemon does not need it, or if an edit holds the lock of the daemon.
        empty = {
            instance.namespace_id
            for instance in instances
            if (instance.schedule_id, instance.slot) not in refilled
        }
        return Successors(work, {daemons_topic(namespace_id) for namespace_id in empty})

    async def follow(self, connection: Connection, _: TaskEnds, successors: Successors, /) -> set[Topic]:
        created = await self._slots.create(connection, successors.work) if successors.work else set()
        return created.union(successors.hints)

    async def _record(self, connection: Connection, ended: Sequence[EndedInstance]) -> None:
        schedules = [instance.schedule_id for instance in ended]
        rows = {row.id: row for row in await store.by_id(connection, schedules)}
        crashes = await transitions.lock(
            connection, [(instance.schedule_id, instance.slot) for instance in ended]
        )
        now = await database_time(connection)
        await transitions.note_ends(
            connection,
            [
                self._slot_end(
                    rows[instance.schedule_id], instance, crashes[instance.schedule_id, instance.slot], now
                )
                for instance in ended
                if (instance.schedule_id, instance.slot) in crashes and instance.schedule_id in rows
            ],
        )

    def _slot_end(self, row: DaemonRow, ended: EndedInstance, crashes: int, now: datetime) -> SlotEnd:
        end = SlotEnd(
            schedule_id=ended.schedule_id,
            slot=ended.slot,
            crashes=0,
            rests=False,
            not_before=None,
            last_status=ended.status.value,
            last_reason=ended.reason,
            last_exit_code=ended.exit_code,
            last_ended_at=ended.finished_at,
        )
        spec = self._spec(row)
        if spec is None or spec.daemon is None:
            return end
        aftermath = after_end(
            spec.daemon,
            ended.status,
            ran_for=ended.ran_for,
            crashes=crashes,
            random=self._rng.random(),
        )
        not_before = now + aftermath.delay if aftermath.delay else None
        return replace(end, crashes=aftermath.crashes, rests=aftermath.rests, not_before=not_before)

    def _spec(self, row: DaemonRow) -> ScheduleSpec | None:
        try:
            return self._slots.specs.get(row.spec)
        except Invalid:
            return None
