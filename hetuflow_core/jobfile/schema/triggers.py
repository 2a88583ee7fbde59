from __future__ import annotations

from hetuflow_core.fields import shape_of
from hetuflow_core.fields.json_schema import Schema
from hetuflow_core.schedule import ScheduleSpec


def schedule() -> Schema:
    return shape_of(ScheduleSpec).schema()
