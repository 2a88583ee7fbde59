"""What the REST API says of events; beside `__init__.py`, which see."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class EventEffect(msgspec.Struct, frozen=True):
    """What became of an event at one schedule."""

    schedule_id: UUID
    # None when the schedule is gone.
    job: str | None
    schedule: str | None
    # `started`, or what else: see the guide.
    outcome: str
    # What it started, alone or together with others.
    task_id: UUID | None
    detail: str | None


class Event(msgspec.Struct, frozen=True):
    id: UUID
    namespace: str
    name: str
    payload: Any
    key: str | None
    # Through what it came: `api`, `sql`, `task`, `replay`, `webhook`.
    source: str
    created_by: str | None
    created_at: datetime
    # The task that emitted it, and how long the chain of such events is.
    task_id: UUID | None
    depth: int
    replay_of: UUID | None
    # False until it has been compared with the schedules that want it.
    matched: bool


class EventDetail(Event, frozen=True):
    effects: list[EventEffect] = []


class EventRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    payload: Any = {}
    namespace: str = "default"
    # The same key in the same namespace is the same event.
    key: str | None = None
    # The task that emits it, as $HETUFLOW_TASK_ID has it.
    task_id: UUID | None = None
