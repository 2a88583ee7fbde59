"""Deciding about fires that wait for each other, in the transaction that ends one or finds one due."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from hetuflow_core.schedule.overlap import AHEAD, OverlapDecision, WaitingFire, decide
from hetuflow_core.schedule.spec import Overlap
from hetuflow_core.states import InstanceStatus, TaskStatus
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import transitions
from hetuflow_server.queue.rows import Ending, TaskChange
from hetuflow_server.schedules.overlap import store, transitions as overlap_transitions
from hetuflow_server.schedules.overlap.store import Undecided, WaitingRow

OVERLAP = "overlap"


@dataclass(slots=True)
class Decided:
    released: set[UUID] = field(default_factory=set)
    skipped: set[UUID] = field(default_factory=set)
    queued: set[UUID] = field(default_factory=set)
    # Schedules whose running fires have to make way.
    to_cancel: list[UUID] = field(default_factory=list)
    look_at: datetime | None = None

    @property
    def count(self) -> int:
        return len(self.released) + len(self.skipped) + len(self.queued)


async def decide_for(
    connection: Connection,
    schedule_ids: Sequence[UUID],
    *,
    found: Sequence[Undecided] = (),
    ended_now: bool = False,
) -> Decided:
    """Decide about what waits in these schedules, as far as nobody else does so at the moment.

    `found` are fires that are known to wait. `ended_now` says that something of each of them has just ended.
    """
    policies = await store.lock(connection, schedule_ids, with_allowed=not ended_now)
    if not policies:
        return Decided()
    # Only now: whoever held the locks before has committed, and is seen.
    now = await database_time(connection)
    waiting = await _waiting(connection, policies, found, now)
    if not waiting:
        return Decided()
    busy = await store.busy(connection, list(waiting))
    decisions = {
        schedule_id: decide(
            Overlap(policies[schedule_id]),
            [WaitingFire(row.id, row.due_at, row.queued) for row in rows],
            now=now,
            busy=schedule_id in busy,
            ended_now=ended_now,
        )
        for schedule_id, rows in waiting.items()
    }
    return await _act(connection, decisions, {row.id: row for rows in waiting.values() for row in rows})


async def _waiting(
    connection: Connection, policies: dict[UUID, str], found: Sequence[Undecided], now: datetime
) -> dict[UUID, list[WaitingRow]]:
    """Return what waits in each schedule, in the order of (`due_at`, id)."""
    rows = {row.id: row for row in await store.waiting(connection, list(policies), now + AHEAD)}
    for one in found:
        # Behind a long queue the ones at its end are not among the first.
        if one.schedule_id in policies and one.id not in rows:
            rows[one.id] = WaitingRow(one.schedule_id, one.id, one.task_id, one.due_at, queued=False)
    waiting: defaultdict[UUID, list[WaitingRow]] = defaultdict(list)
    for row in sorted(rows.values(), key=lambda row: (row.due_at, row.id)):
        waiting[row.schedule_id].append(row)
    return waiting


async def _act(
    connection: Connection, decisions: dict[UUID, OverlapDecision], rows: dict[UUID, WaitingRow]
) -> Decided:
    decided = Decided(
        to_cancel=[schedule_id for schedule_id, one in decisions.items() if one.cancel_running],
        look_at=min((one.look_at for one in decisions.values() if one.look_at), default=None),
    )
    skip = [rows[id_] for one in decisions.values() for id_ in one.skip]
    if skip:
        decided.skipped = await _skip(connection, skip)
    if queue := [id_ for one in decisions.values() for id_ in one.queue]:
        decided.queued = await overlap_transitions.queue(connection, queue)
    if release := [id_ for one in decisions.values() for id_ in one.release]:
        decided.released = await overlap_transitions.release(connection, release)
    return decided


async def _skip(connection: Connection, rows: Sequence[WaitingRow]) -> set[UUID]:
    locked = await store.lock_free_tasks(connection, [row.task_id for row in rows])
    endings = [
        Ending(row.id, None, InstanceStatus.SKIPPED, reason=OVERLAP) for row in rows if row.task_id in locked
    ]
    ended = {one.id for one in await transitions.skip_waiting(connection, endings)} if endings else set()
    await transitions.write_tasks(
        connection,
        [
            TaskChange(
                id=row.task_id,
                status=TaskStatus.SKIPPED,
                reason=OVERLAP,
                seq=1,
                attempts=0,
                losses=0,
                exit_code=None,
                due_at=row.due_at,
            )
            for row in rows
            if row.id in ended
        ],
    )
    return ended
