"""What a look at the schedules comes to: a turn for each of them, planned outside of any transaction.

Schedules that say the same and have come as far share their plan, fires of the same instant what their ids
begin with, and fires of the same job nearly all of their rows: what is left to do for one fire is to hash its
two ids and to put encoded parts together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
import structlog

from hetuflow_core import ids
from hetuflow_core.calendar import DaySet
from hetuflow_core.schedule import ScheduleSpec, jittered
from hetuflow_core.schedule.planning import Planned, ScheduleProgress, plan
from hetuflow_server.jobs.versions import JobVersion
from hetuflow_server.queue.rows import NewInstance, NewTask
from hetuflow_server.schedules import store
from hetuflow_server.schedules.store import Advance, DueSchedule
from hetuflow_server.schedules.stored_specs import fires_of, names_calendars
from hetuflow_server.schedules.task_template import TaskTemplate, later, mould_of
from hetuflow_server.schedules.transitions import (
    EncodedPart,
    FireRow,
    encode_common,
    encode_fire,
    encode_times,
)

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.generator")

HORIZON: Final = timedelta(seconds=60)
# A fire is a schedule's row, a task and an instance: so many in one transaction are less than 5,000 rows.
MOST_FIRES: Final = 1_600
# However many schedules are due, one that catches up gets on by so many fires at a time.
_LEAST_SHARE: Final = 20
# The event loop has its turn after so many plans: the writes under way wait for no more than these.
_BREATH: Final = 25
# A schedule that cannot be planned is looked at again so much later.
_SET_ASIDE: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class DueFires:
    """What one look at the schedules has found."""

    now: datetime
    due: Sequence[DueSchedule]
    # By their text; a schedule whose text is not among them cannot be read.
    specs: Mapping[str, ScheduleSpec]
    # By namespace and name.
    calendars: Mapping[int, Mapping[str, DaySet]]
    # Of the schedules whose tasks count under a key.
    keyed: Mapping[UUID, JobVersion]


class Fire(NamedTuple):
    fire_at: datetime
    due_at: datetime
    # The scope of its job's concurrency key.
    key: str | None = None


@dataclass(frozen=True, slots=True)
class FirePlan:
    """What one schedule does in this tick."""

    advance: Advance
    namespace_id: int
    # Of any schedule that says the same; None when it is set aside.
    task_template: TaskTemplate | None = None
    fires: Sequence[Fire] = ()
    # Its fires as they are written; none when they count under a key, which may make them wait.
    rows: Sequence[FireRow] = ()

    def new_work(self) -> list[tuple[NewTask, NewInstance]]:
        """Return its fires as records, which can be written whether they are there already or not."""
        if self.task_template is None:
            return []
        schedule_id = self.advance.id
        task_template = replace(self.task_template, schedule_id=schedule_id)
        return [
            task_template.new_work(ids.task_of_schedule(schedule_id, fire_at), fire_at, due_at, key)
            for fire_at, due_at, key in self.fires
        ]


class _Common(NamedTuple):
    """What the fires of a job's schedules that say the same have in common."""

    task_template: TaskTemplate
    encoded: EncodedPart
    # By their schedule's plan; of schedules without jitter, whose fires are due when they fire.
    times: dict[int, list[bytes]]


class _Shared(NamedTuple):
    """What schedules share that say the same and have come as far."""

    planned: Planned
    fires: tuple[Fire, ...]
    ids: tuple[ids.FireIds, ...]


class FirePlanner:
    """Plans the turns of one look, batch by batch."""

    def __init__(self, look: DueFires) -> None:
        self._look = look
        self._begin = 0
        self._shared: dict[tuple[object, ...], _Shared] = {}
        self._common: dict[tuple[UUID, int, int], _Common] = {}

    async def next_batch(self) -> list[FirePlan]:
        """Plan for as many of the next schedules as there is room for in one transaction; none at the end."""
        turns: list[FirePlan] = []
        batch = self._look.due[self._begin : self._begin + MOST_FIRES]
        room, share = MOST_FIRES, max(_LEAST_SHARE, MOST_FIRES // max(1, len(batch)))
        for row in batch:
            if room == 0:
                break
            turn = self._turn_or_later(row, min(room, share))
            turns.append(turn)
            room -= len(turn.fires)
            if len(turns) % _BREATH == 0:
                await asyncio.sleep(0)
        self._begin += len(turns)
        return turns

    def _turn_or_later(self, row: DueSchedule, room: int) -> FirePlan:
        spec = self._look.specs.get(row.spec)
        if spec is not None:
            try:
                return self._turn(row, spec, room)
            except Exception:
                # One schedule must not keep the others from firing; it is late then, and not lost.
                log.exception("A schedule cannot be planned.", schedule=str(row.id), name=row.name)
        return _set_aside(row, self._look.now)

    def _turn(self, row: DueSchedule, spec: ScheduleSpec, room: int) -> FirePlan:
        shared, common = self._shared_with(row, spec, room), self._common_with(row, spec)
        planned, fires = shared.planned, shared.fires
        if planned.missed_from is not None:
            _tell_missed(row, spec, planned, planned.missed_from)
        advance = Advance(
            row.id,
            row.version,
            row.cursor,
            planned.progress.cursor,
            planned.progress.decided_until,
            planned.next_fire_at,
            len(fires),
        )
        if spec.jitter:
            fires = tuple([Fire(fire.fire_at, jittered(row.id, fire.fire_at, spec.jitter)) for fire in fires])
        if row.keyed:
            return FirePlan(
                advance, row.namespace_id, common.task_template, self._keyed(row, common.task_template, fires)
            )
        schedule, encoded = row.id.bytes, common.encoded
        rows = [
            encode_fire(*fire_ids.of(schedule), schedule, times, encoded)
            for fire_ids, times in zip(shared.ids, _times(common, shared, fires), strict=True)
        ]
        return FirePlan(advance, row.namespace_id, common.task_template, fires, rows)

    def _shared_with(self, row: DueSchedule, spec: ScheduleSpec, room: int) -> _Shared:
        key = (
            id(spec),  # kept by the look, so nothing else has this id meanwhile
            row.cursor,
            row.decided_until,
            None if spec.max_count is None else row.fired_count,
            row.namespace_id if names_calendars(spec) else None,
            room,
        )
        shared = self._shared.get(key)
        if shared is None:
            planned = plan(
                spec,
                ScheduleProgress(row.cursor, row.decided_until, row.fired_count),
                fires_of(spec, self._look.calendars.get(row.namespace_id, {})),
                now=self._look.now,
                horizon=HORIZON,
                room=room,
            )
            shared = self._shared[key] = _Shared(
                planned,
                tuple([Fire(fire_at, fire_at) for fire_at in planned.fires]),
                tuple([ids.FireIds(fire_at) for fire_at in planned.fires]),
            )
        return shared

    def _common_with(self, row: DueSchedule, spec: ScheduleSpec) -> _Common:
        key = row.job_id, row.job_version, id(spec)
        common = self._common.get(key)
        if common is None:
            task_template = mould_of(row, spec, _params(row, spec))
            common = self._common[key] = _Common(task_template, _encode(task_template, self._look.now), {})
        return common

    def _keyed(self, row: DueSchedule, task_template: TaskTemplate, fires: Sequence[Fire]) -> list[Fire]:
        version, params = self._look.keyed[row.id], msgspec.json.decode(task_template.params)
        keyed = []
        for fire_at, due_at, _ in fires:
            id_ = ids.task_of_schedule(row.id, fire_at)
            keyed.append(Fire(fire_at, due_at, version.concurrency_key(params, task_id=id_, fire_at=fire_at)))
        return keyed


def _times(common: _Common, shared: _Shared, fires: Sequence[Fire]) -> list[bytes]:
    """Return the times of these fires, encoded; once for all schedules whose fires are due when they fire."""
    deadline = common.task_template.deadline
    if fires is not shared.fires:
        return [encode_times(at, due, later(due, deadline)) for at, due, _ in fires]
    times = common.times.get(id(shared))
    if times is None:
        times = common.times[id(shared)] = [
            encode_times(at, due, later(due, deadline)) for at, due, _ in fires
        ]
    return times


def _encode(task_template: TaskTemplate, at: datetime) -> EncodedPart:
    """Encode what all its fires have in common, by the example of one of them."""
    return encode_common(*task_template.new_work(task_template.schedule_id, at, at))


def _params(row: DueSchedule, spec: ScheduleSpec) -> str:
    return store.to_json({**msgspec.json.decode(row.params), **spec.params}) if spec.params else row.params


def _tell_missed(row: DueSchedule, spec: ScheduleSpec, planned: Planned, first: datetime) -> None:
    log.warning(
        "Fires were missed and are not made up for.",
        schedule=str(row.id),
        name=row.name,
        misfire=str(spec.misfire),
        first=first.isoformat(),
        until=planned.missed_until and planned.missed_until.isoformat(),
    )


def _set_aside(row: DueSchedule, now: datetime) -> FirePlan:
    """Leave a schedule where it is and look at it again later."""
    return FirePlan(
        Advance(
            id=row.id,
            version=row.version,
            cursor=row.cursor,
            new_cursor=row.cursor,
            decided_until=row.decided_until,
            next_fire_at=max(now, row.cursor) + _SET_ASIDE,
            fired=0,
        ),
        row.namespace_id,
    )
