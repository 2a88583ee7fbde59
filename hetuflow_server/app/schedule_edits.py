"""Edits of schedules, with the hooks of other packages in the same transaction."""

from __future__ import annotations

from hetuflow_server.events.triggers import EventTriggers
from hetuflow_server.schedules.edits import ScheduleEdits


def schedule_edits() -> ScheduleEdits:
    return ScheduleEdits([EventTriggers()])
