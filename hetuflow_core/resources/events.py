"""Events in the REST API."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class EventEffect(msgspec.Struct, frozen=True):
    """The effect of an event on a schedule."""

    schedule_id: UUID
    # None if the schedule was deleted.
    job: str | None
    schedule: str | None
    # `started` or another outcome, see the guide.
    outcome: str
    # The task that the event started, alone or together with other events.
    task_id: UUID | None
    detail: str | None


class Event(msgspec.Struct, frozen=True):
    id: UUID
    namespace: str
    name: str
    payload: Any
    key: str | None
    # Origin: `api`, `sql`, `task`, `replay` or `webhook`.
    source: str
    created_by: str | None
    created_at: datetime
    # The task that emitted the event, and the length of the chain of such events.
    task_id: UUID | None
    depth: int
    replay_of: UUID | None
    # False until the event has been matched against the schedules.
    matched: bool


class EventDetail(Event, frozen=True):
    effects: list[EventEffect] = []


class EventRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    payload: Any = {}
    namespace: str = "default"
    # Two requests with the same key in the same namespace create one event.
    key: str | None = None
    # The emitting task, from $HETUFLOW_TASK_ID.
    task_id: UUID | None = None
