"""Generation: schedules become tasks, a minute ahead of time, each fire once.

A tick reads what the index of the next fires says is due, plans outside of any transaction, and then moves
each schedule's cursor by compare-and-set, which says which plans still hold; only those get their tasks.
Whoever was faster, an editor or another leader, wins; and whatever is cut off half way has not happened.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
import structlog

from hetuflow_core import ids
from hetuflow_core.calendar import Calendar
from hetuflow_core.errors import Invalid
from hetuflow_core.schedule import ScheduleSpec, jittered
from hetuflow_core.schedule.planning import Planned, Progress, plan
from hetuflow_server.services.calendars import load_calendars
from hetuflow_server.services.fires import StoredSpecs, fires_of, names_calendars
from hetuflow_server.services.firing import mould_of
from hetuflow_server.services.job_versions import JobVersion, JobVersions
from hetuflow_server.services.leadership import Leadership
from hetuflow_server.store import (
    birth_transitions,
    schedules as store,
)
from hetuflow_server.store.database import Connection, Database
from hetuflow_server.store.records import NewInstance, NewTask
from hetuflow_server.store.schedules import Advance, DueSchedule
from hetuflow_server.stream.hints import Hints, namespace_topic

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.generator")

HORIZON = timedelta(seconds=60)
# A fire is a schedule's row, a task and an instance: so many in one transaction are less than 5,000 rows.
MOST_FIRES = 1_600
# So many batches come of one look.
_MOST_BATCHES = 10
# However many schedules are due, one that catches up gets on by so many fires at a time.
_LEAST_SHARE = 20
# The event loop has its turn after so many plans: the write under way waits for no more than these.
_BREATH = 25
# Agents take what is due within two seconds; they are told only of what they may take.
_SOON = timedelta(seconds=2)
# A schedule that cannot be planned is looked at again so much later.
_SET_ASIDE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one schedule does in this tick."""

    advance: Advance
    tasks: Sequence[NewTask] = ()
    instances: Sequence[NewInstance] = ()


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look at the schedules has found."""

    now: datetime
    due: Sequence[DueSchedule]
    specs: Mapping[UUID, ScheduleSpec]
    # By namespace and name.
    calendars: Mapping[int, Mapping[str, Calendar]]
    # The versions of jobs whose tasks count under a key.
    keyed: Mapping[UUID, JobVersion]


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
        if self._leadership.term is None:
            return 0
        async with self._database.transaction() as connection:
            look = await self._look(connection)
        moved, begin, writing = 0, 0, None
        try:
            while begin < len(look.due):
                # The next batch is planned while the database writes the one before.
                turns = await _plan(look, begin)
                begin += len(turns)
                moved += await writing if writing is not None else 0
                writing = asyncio.ensure_future(self._generate(turns, look.now))
            return moved + (await writing if writing is not None else 0)
        finally:
            if writing is not None and not writing.done():
                writing.cancel()

    async def _look(self, connection: Connection) -> _Look:
        now = await store.clock(connection)
        due = await store.due(connection, now + HORIZON, _MOST_BATCHES * MOST_FIRES)
        specs = {row.id: spec for row in due if (spec := self._spec(row)) is not None}
        uses = [
            (row.namespace_id, spec)
            for row in due
            if (spec := specs.get(row.id)) is not None and names_calendars(spec)
        ]
        keyed = {
            row.id: await self._versions.get(connection, row.job_id, row.job_version)
            for row in due
            if row.keyed
        }
        return _Look(now, due, specs, await load_calendars(connection, uses), keyed)

    async def _generate(self, turns: Sequence[_Turn], now: datetime) -> int:
        async with self._leadership.fenced() as connection:
            moved, created = await _write(connection, turns)
        self._tell(turns, moved, now)
        if created:
            log.debug("Fires were generated.", schedules=len(moved), tasks=created)
        return len(moved)

    def _spec(self, row: DueSchedule) -> ScheduleSpec | None:
        try:
            return self._specs.get(row.spec)
        except Invalid as error:
            detail = "; ".join(map(str, error.faults)) or error.message
            # Its faults say more than where it was found out.
            log.warning(
                "A stored schedule cannot be read.", schedule=str(row.id), name=row.name, detail=detail
            )
            return None

    def _tell(self, turns: Sequence[_Turn], moved: Collection[UUID], now: datetime) -> None:
        soon = {
            task.namespace_id
            for turn in turns
            if turn.advance.id in moved
            for task in turn.tasks
            if task.due_at <= now + _SOON
        }
        self._hints.give([namespace_topic(namespace_id) for namespace_id in soon])


async def _plan(look: _Look, begin: int) -> list[_Turn]:
    """Plan for as many schedules, from that one on, as there is room for in one transaction."""
    turns: list[_Turn] = []
    plans = _Plans(look)
    batch = look.due[begin : begin + MOST_FIRES]
    room, share = MOST_FIRES, max(_LEAST_SHARE, MOST_FIRES // len(batch))
    for row in batch:
        if room == 0:
            break
        spec, turn = look.specs.get(row.id), None
        if spec is not None:
            try:
                planned = plans.of(row, spec, min(room, share))
                turn = _turn(row, spec, planned, look.keyed.get(row.id))
            except Exception:
                # One schedule must not keep the others from firing; it is late then, and not lost.
                log.exception("A schedule cannot be planned.", schedule=str(row.id), name=row.name)
        turns.append(turn := turn or _set_aside(row, look.now))
        room -= len(turn.tasks)
        if len(turns) % _BREATH == 0:
            await asyncio.sleep(0)
    return turns


class _Plans:
    """The plans of one batch: schedules that say the same and have come as far share theirs."""

    def __init__(self, look: _Look) -> None:
        self._look = look
        self._known: dict[tuple[object, ...], Planned] = {}

    def of(self, row: DueSchedule, spec: ScheduleSpec, room: int) -> Planned:
        key = (
            id(spec),  # kept by the look, so nothing else has this id meanwhile
            row.cursor,
            row.decided_until,
            None if spec.max_count is None else row.fired_count,
            row.namespace_id if names_calendars(spec) else None,
            room,
        )
        planned = self._known.get(key)
        if planned is None:
            planned = self._known[key] = plan(
                spec,
                Progress(row.cursor, row.decided_until, row.fired_count),
                fires_of(spec, self._look.calendars.get(row.namespace_id, {})),
                now=self._look.now,
                horizon=HORIZON,
                room=room,
            )
        if planned.missed_from is not None:
            _tell_missed(row, spec, planned, planned.missed_from)
        return planned


def _tell_missed(row: DueSchedule, spec: ScheduleSpec, planned: Planned, first: datetime) -> None:
    log.warning(
        "Fires were missed and are not made up for.",
        schedule=str(row.id),
        name=row.name,
        misfire=str(spec.misfire),
        first=first.isoformat(),
        until=planned.missed_until and planned.missed_until.isoformat(),
    )


def _turn(row: DueSchedule, spec: ScheduleSpec, planned: Planned, keyed: JobVersion | None) -> _Turn:
    params = row.params
    if spec.params:
        params = store.to_json({**msgspec.json.decode(params), **spec.params})
    values = msgspec.json.decode(params) if keyed else {}
    mould = mould_of(row, spec, params)
    cast = []
    for fire_at in planned.fires:
        id_ = ids.task_of_schedule(row.id, fire_at)
        key = keyed.concurrency_key(values, task_id=id_, fire_at=fire_at) if keyed else None
        cast.append(mould.cast(id_, fire_at, jittered(row.id, fire_at, spec.jitter), key))
    return _Turn(
        Advance(
            id=row.id,
            version=row.version,
            cursor=row.cursor,
            new_cursor=planned.progress.cursor,
            decided_until=planned.progress.decided_until,
            next_fire_at=planned.next_fire_at,
            fired=len(planned.fires),
        ),
        [task for task, _ in cast],
        [instance for _, instance in cast],
    )


def _set_aside(row: DueSchedule, now: datetime) -> _Turn:
    """Leave a schedule where it is and look at it again later."""
    return _Turn(
        Advance(
            id=row.id,
            version=row.version,
            cursor=row.cursor,
            new_cursor=row.cursor,
            decided_until=row.decided_until,
            next_fire_at=max(now, row.cursor) + _SET_ASIDE,
            fired=0,
        )
    )


async def _write(connection: Connection, turns: Sequence[_Turn]) -> tuple[set[UUID], int]:
    """Move the cursors and insert what belongs to those that moved; return them, and how many are new."""
    moved = await store.advance(connection, [turn.advance for turn in turns])
    tasks = [task for turn in turns if turn.advance.id in moved for task in turn.tasks]
    if not tasks:
        return moved, 0
    instances = [one for turn in turns if turn.advance.id in moved for one in turn.instances]
    created = await birth_transitions.create(connection, tasks, instances)
    # An edit lets fires be that somebody has reserved already, and the schedule comes to them once more.
    repeated = Counter(task.schedule_id for task in tasks if task.id not in created and task.schedule_id)
    if repeated:
        await store.uncount(connection, repeated)
    return moved, len(created)
