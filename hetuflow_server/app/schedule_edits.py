"""Edits of schedules, with what other subjects do in the same transaction."""

from __future__ import annotations

from hetuflow_server.events.triggers import EventTriggers
from hetuflow_server.schedules.edits import ScheduleEdits


def schedule_edits() -> ScheduleEdits:
    return ScheduleEdits([EventTriggers()])
