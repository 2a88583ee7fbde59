"""Generation: schedules become tasks, a minute ahead of time, each fire once.

A tick reads what the index of the next fires says is due, plans outside of any transaction, and then moves
each schedule's cursor by compare-and-set, which says which plans still hold; only those get their tasks.
Whoever was faster, an editor or another leader, wins; and whatever is cut off half way has not happened.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import structlog

from hetuflow_core.errors import Invalid
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_server.cluster.hints import Hints, namespace_topic
from hetuflow_server.cluster.leadership import Leadership
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Connection, Database, Lane
from hetuflow_server.queue import create_transitions
from hetuflow_server.schedules import store
from hetuflow_server.schedules.calendars.resolved import load_calendars
from hetuflow_server.schedules.fire_planner import HORIZON, MOST_FIRES, DueFires, FirePlan, FirePlanner
from hetuflow_server.schedules.store import DueSchedule
from hetuflow_server.schedules.stored_specs import StoredSpecs, names_calendars
from hetuflow_server.schedules.transitions import AlreadyThere, create_fires

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.generator")

# So many batches come of one look, and so many looks go on from each other: what has become due before them
# meanwhile is seen after that.
_MOST_BATCHES: Final = 10
_MOST_LOOKS: Final = 4
_MOST_DUE: Final = _MOST_BATCHES * MOST_FIRES
# So many transactions are under way at once: while one of them is committed another one works.
_WRITERS: Final = 2
# Agents take what is due within two seconds; they are told only of what they may take.
_SOON: Final = timedelta(seconds=2)


class Generator:
    def __init__(
        self, database: Database, leadership: Leadership, versions: JobVersions, hints: Hints
    ) -> None:
        self._database = database
        self._versions = versions
        self._leadership = leadership
        self._hints = hints
        self._specs = StoredSpecs()

    async def run_once(self) -> int:
        """Generate what is due, in batches; return how many schedules have moved on."""
        if self._leadership.term is None or not await self._any_due():
            return 0
        moved, after = 0, store.BEGINNING
        writing: deque[asyncio.Task[int]] = deque()
        try:
            for _ in range(_MOST_LOOKS):
                async with self._database.transaction() as connection:
                    look = await self._look(connection, after)
                planner = FirePlanner(look)
                # What comes next is read and planned while the database writes what was before.
                while turns := await planner.next_batch():
                    if len(writing) == _WRITERS:
                        moved += await writing.popleft()
                    writing.append(asyncio.create_task(self._generate(turns, look.now)))
                if len(look.due) < _MOST_DUE:
                    break
                after = max((row.next_fire_at, row.id) for row in look.due)
            while writing:
                moved += await writing.popleft()
        finally:
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
        return moved

    async def _any_due(self) -> bool:
        async with self._database.batched_reading(lane=Lane.INDEX_ORDER) as connection:
            return await store.any_due(connection, HORIZON)

    async def _look(self, connection: Connection, after: tuple[datetime, UUID]) -> DueFires:
        now = await database_time(connection)
        due = await store.due(connection, now + HORIZON, _MOST_DUE, after)
        specs = self._read(due)
        uses = [
            (row.namespace_id, spec)
            for row in due
            if (spec := specs.get(row.spec)) is not None and names_calendars(spec)
        ]
        keyed = {
            row.id: await self._versions.get(connection, row.job_id, row.job_version)
            for row in due
            if row.keyed
        }
        return DueFires(now, due, specs, await load_calendars(connection, uses), keyed)

    async def _generate(self, turns: Sequence[FirePlan], now: datetime) -> int:
        try:
            moved, created = await self._write(turns, create)
        except AlreadyThere:
            # An edit lets fires be that somebody has reserved already, and the schedule comes to them again.
            moved, created = await self._write(turns, create_missing)
        self._tell(moved, now)
        if created:
            log.debug("Fires were generated.", schedules=len(moved), tasks=created)
        return len(moved)

    async def _write(self, turns: Sequence[FirePlan], create: Create) -> tuple[Sequence[FirePlan], int]:
        """Move the cursors and insert what belongs to those that moved; return them, and how many are new."""
        async with self._leadership.fenced() as connection:
            moved = await advance(connection, turns)
            return moved, await create(connection, moved)

    def _read(self, due: Sequence[DueSchedule]) -> dict[str, ScheduleSpec]:
        specs: dict[str, ScheduleSpec] = {}
        for row in due:
            if row.spec not in specs:
                try:
                    specs[row.spec] = self._specs.get(row.spec)
                except Invalid as error:
                    # Its faults say more than where it was found out.
                    detail = "; ".join(map(str, error.faults)) or error.message
                    log.warning(
                        "A stored schedule cannot be read.",
                        schedule=str(row.id),
                        name=row.name,
                        detail=detail,
                    )
        return specs

    def _tell(self, turns: Sequence[FirePlan], now: datetime) -> None:
        soon = now + _SOON
        namespaces = {turn.namespace_id for turn in turns if any(fire.due_at <= soon for fire in turn.fires)}
        self._hints.give([namespace_topic(namespace_id) for namespace_id in namespaces])


async def advance(connection: Connection, turns: Sequence[FirePlan]) -> Sequence[FirePlan]:
    """Move the cursors; return the turns of the schedules that were as they were thought to be."""
    moved = await store.advance(connection, [turn.advance for turn in turns])
    return turns if len(moved) == len(turns) else [turn for turn in turns if turn.advance.id in moved]


Create = Callable[[Connection, Sequence[FirePlan]], Awaitable[int]]


async def create(connection: Connection, turns: Sequence[FirePlan]) -> int:
    """Insert the fires of these turns; raise AlreadyThere when one of them exists."""
    rows = [row for turn in turns for row in turn.rows]
    await create_fires(connection, rows)
    return len(rows) + await create_missing(connection, [turn for turn in turns if not turn.rows])


async def create_missing(connection: Connection, turns: Sequence[FirePlan]) -> int:
    """Insert those fires of these turns that do not exist; return how many they are."""
    cast = [pair for turn in turns for pair in turn.new_work()]
    if not cast:
        return 0
    created = await create_transitions.create(
        connection, [task for task, _ in cast], [instance for _, instance in cast]
    )
    repeated = Counter(task.schedule_id for task, _ in cast if task.id not in created and task.schedule_id)
    if repeated:
        await store.uncount(connection, repeated)
    return len(created)
