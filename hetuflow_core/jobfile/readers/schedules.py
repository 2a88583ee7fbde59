from __future__ import annotations

from collections.abc import Mapping

from hetuflow_core.fields import shape_of
from hetuflow_core.fields.value_reader import ValueReader
from hetuflow_core.schedule import ScheduleSpec

SCHEDULE_KEYS = tuple(shape_of(ScheduleSpec).keys)
_MOST_SCHEDULES = 1000


def read_schedules(given: ValueReader, unsupported: Mapping[str, str]) -> tuple[ScheduleSpec, ...]:
    items = given.items() or []
    if len(items) > _MOST_SCHEDULES:
        given.refuse(f"a job has at most {_MOST_SCHEDULES} schedules: spread them over several jobs.")
        return ()
    schedules: dict[str, ScheduleSpec] = {}
    for item in items:
        spec = read_schedule(item, unsupported)
        if spec is not None and schedules.setdefault(spec.name, spec) is not spec:
            item.refuse(f'the schedule "{spec.name}" is written twice: rename one of them.')
    return tuple(schedules.values())


def read_schedule(given: ValueReader, _unsupported: Mapping[str, str]) -> ScheduleSpec | None:
    return shape_of(ScheduleSpec).read(given)
