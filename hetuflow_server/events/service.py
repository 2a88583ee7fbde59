"""What people and programs do with events: emit, look, say once more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core import ids
from hetuflow_core.errors import Fault, Invalid, NotFound, TooLarge
from hetuflow_core.events import LARGEST_PAYLOAD, LONGEST_KEY, check_name
from hetuflow_core.expressions.values import DEEPEST_VALUES
from hetuflow_core.resources.events import Event, EventDetail, EventRequest
from hetuflow_server.events import store
from hetuflow_server.events.store import EventFilter, NewEvent
from hetuflow_server.identity import access_store
from hetuflow_server.postgres import keyset
from hetuflow_server.postgres.connection import Lane
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.postgres.keyset import Listed
from hetuflow_server.queue import tasks_store as task_store
from hetuflow_server.requests.context import RequestContext

API, TASK, REPLAY = "api", "task", "replay"


@dataclass(frozen=True, slots=True)
class Emitted:
    event: EventDetail
    # False when an event with this key was there already.
    is_new: bool


class Events:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._when_recorded: list[Callable[[], None]] = []

    def when_recorded(self, callback: Callable[[], None]) -> None:
        """Call `callback` when an event has been committed here, for whoever matches them."""
        self._when_recorded.append(callback)

    async def emit(self, context: RequestContext, asked: EventRequest) -> Emitted:
        """Record an event; one with a key that is known in its namespace is the one there was."""
        context.require_namespace(asked.namespace)
        payload = check_event(asked.name, asked.payload, asked.key)
        async with self._database.transaction(context) as connection:
            namespace_id = (await access_store.namespace_ids(connection, [asked.namespace]))[asked.namespace]
            depth = await self._depth(connection, asked)
            new = NewEvent(
                namespace_id=namespace_id,
                name=asked.name,
                payload=payload,
                key=asked.key,
                source=API if asked.task_id is None else TASK,
                created_by=context.principal.name,
                depth=depth,
                task_id=asked.task_id,
            )
            id_, is_new = await store.record(connection, new)
            event = await self._detail(connection, context, id_)
            context.audit.note_change(
                "event", id_, asked.namespace, after={"name": new.name, "payload": payload}
            )
        self._tell(context, is_new)
        return Emitted(event, is_new)

    async def record(self, connection: Connection, new: NewEvent) -> tuple[UUID, bool]:
        """Record a checked event in the transaction of whoever received it; `announce` it when committed."""
        return await store.record(connection, new)

    def announce(self, context: RequestContext) -> None:
        """Have what has been recorded and committed matched at once; without it that takes a second."""
        self._tell(context, is_new=True)

    async def replay(self, context: RequestContext, event_id: UUID) -> Emitted:
        """Say an event once more: a new one of the same name and payload, matched with what is there now."""
        async with self._database.transaction(context) as connection:
            found = await self._detail(connection, context, event_id)
            namespaces = await access_store.namespace_ids(connection, [found.namespace])
            new = NewEvent(
                namespace_id=namespaces[found.namespace],
                name=found.name,
                payload=msgspec.json.encode(found.payload).decode(),
                key=None,
                source=REPLAY,
                created_by=context.principal.name,
                replay_of=found.id,
            )
            id_, is_new = await store.record(connection, new)
            event = await self._detail(connection, context, id_)
            context.audit.note_change(
                "event", id_, found.namespace, after={"name": new.name, "replay_of": str(found.id)}
            )
        self._tell(context, is_new)
        return Emitted(event, is_new)

    async def event(self, context: RequestContext, event_id: UUID) -> EventDetail:
        async with self._database.transaction(context) as connection:
            return await self._detail(connection, context, event_id)

    async def list_events(
        self, wanted: EventFilter, *, before: UUID | None, limit: int, cap: int
    ) -> Listed[Event]:
        """Return up to `limit` events; there may be a next page behind a short one."""
        _check_times(wanted.since, wanted.until)
        async with self._database.transaction(lane=Lane.INDEX_ORDER) as connection:
            walk = await store.walk_to(connection, wanted)
            return await keyset.page(connection, walk, store.listed, before=before, limit=limit, cap=cap)

    async def _detail(self, connection: Connection, context: RequestContext, event_id: UUID) -> EventDetail:
        found = await store.shown(connection, event_id)
        if found is None or not context.sees(found.namespace):
            raise NotFound("There is no such event.", code="event.not_found")
        effects = await store.effects(connection, event_id)
        return EventDetail(**msgspec.structs.asdict(found), effects=effects)

    async def _depth(self, connection: Connection, asked: EventRequest) -> int:
        """Return how many events have led to this one, if a task of the namespace emits it."""
        if asked.task_id is None:
            return 0
        task = await task_store.task_detail(connection, asked.task_id)
        if task is None or task.namespace != asked.namespace:
            raise Invalid(
                f"There is no task {asked.task_id} in the namespace {asked.namespace} that could emit it.",
                code="event.task",
            )
        return await store.chain_depth(connection, asked.task_id)

    def _tell(self, context: RequestContext, is_new: bool) -> None:
        if is_new:
            for callback in self._when_recorded:
                context.after_commit(callback)


def check_event(name: str, payload: Any, key: str | None) -> str:
    """Return the payload as JSON; raise `Invalid` or `TooLarge` unless there may be such an event."""
    faults = []
    try:
        check_name(name)
    except Invalid as error:
        faults.append(Fault("name", error.message))
    if key is not None and not 1 <= len(key) <= LONGEST_KEY:
        faults.append(Fault("key", f"has 1 to {LONGEST_KEY} characters: shorten it."))
    if _depth_of(payload) > DEEPEST_VALUES - 1:
        faults.append(Fault("payload", f"is nested more than {DEEPEST_VALUES - 1} deep: flatten it."))
        raise Invalid("The event cannot be accepted.", code="event.invalid", faults=faults)
    encoded = msgspec.json.encode(payload).decode()
    if "\\u0000" in encoded:
        faults.append(Fault("payload", "holds a NUL character: remove it."))
    if faults:
        raise Invalid("The event cannot be accepted.", code="event.invalid", faults=faults)
    if len(encoded.encode()) > LARGEST_PAYLOAD:
        raise TooLarge(
            f"The payload of an event has at most {LARGEST_PAYLOAD // 1024} KiB: pass the address of a file."
        )
    return encoded


def _depth_of(payload: Any) -> int:
    depth, level = 0, [payload]
    while level := [
        item
        for one in level
        if isinstance(one, (dict, list))
        for item in (one.values() if isinstance(one, dict) else one)
    ]:
        depth += 1
        if depth > DEEPEST_VALUES:
            break
    return depth


def _check_times(*times: datetime | None) -> None:
    for at in times:
        if at is None:
            continue
        try:
            ids.first_id_at(at)
        except ValueError:
            raise Invalid("Write an instant with an offset, as in 2026-12-31T23:59:00+01:00.") from None
