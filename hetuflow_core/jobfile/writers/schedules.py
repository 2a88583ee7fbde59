from __future__ import annotations

from typing import Any

from hetuflow_core.fields import shape_of
from hetuflow_core.schedule import ScheduleSpec


def schedule_document(spec: ScheduleSpec) -> dict[str, Any]:
    return shape_of(ScheduleSpec).write(spec)
