"""The REST calls about events."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core.client.calls import get, pages, post, segment
from hetuflow_core.client.exchange import Plan, Stream
from hetuflow_core.resources.events import Event, EventDetail, EventRequest
from hetuflow_core.resources.pages import Page


def emit(
    name: str,
    payload: Any = None,
    *,
    namespace: str = "default",
    key: str | None = None,
    task_id: UUID | None = None,
) -> Plan[EventDetail]:
    """Record an event, for whichever schedules want it. A second call with the same key gives the first one.

    A task that emits passes its own id ($HETUFLOW_TASK_ID), so that events cannot go round in circles.
    """
    request = EventRequest(name, {} if payload is None else payload, namespace, key, task_id)
    return (yield from post("/events", request, EventDetail, repeatable=key is not None))


def event(event_id: UUID | str) -> Plan[EventDetail]:
    """An event and what became of it."""
    return (yield from get(f"/events/{segment(event_id)}", EventDetail))


def events(
    *,
    namespace: str | None = None,
    name: str | None = None,
    key: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    page_size: int | None = None,
) -> Stream[Event]:
    """Events, newest first; fetched page by page as they are iterated over."""
    query = {
        "namespace": namespace,
        "name": name,
        "key": key,
        "since": since,
        "until": until,
        "limit": page_size,
    }
    return (yield from pages("/events", query, Page[Event]))


def replay(event_id: UUID | str) -> Plan[EventDetail]:
    """Say an event once more: the answer is a new one with its name and payload."""
    return (yield from post(f"/events/{segment(event_id)}/replay", None, EventDetail))
