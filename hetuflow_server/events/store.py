"""Events: recording them, and what people ask about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.resources.events import Event, EventEffect
from hetuflow_server.identity import access_store
from hetuflow_server.postgres.database import Connection
from hetuflow_server.postgres.keyset import EVERYTHING, FIRST, LAST, KeysetIndex, KeysetQuery, few


@dataclass(frozen=True, slots=True)
class NewEvent:
    namespace_id: int
    name: str
    # JSON.
    payload: str
    key: str | None
    source: str
    created_by: str | None
    depth: int = 0
    task_id: UUID | None = None
    replay_of: UUID | None = None


@dataclass(frozen=True, slots=True)
class EventFilter:
    # None: all of them.
    namespaces: list[str] | None = None
    # A name, or the beginning of one followed by `*`.
    name: str | None = None
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None


_RECORD = """
SELECT recorded, is_new FROM hetuflow_record_event(
  %(namespace_id)s, %(name)s, %(payload)s::jsonb, %(key)s, %(source)s, %(created_by)s, %(depth)s::smallint,
  %(task_id)s, %(replay_of)s)"""

_EVENTS = """
SELECT e.id, n.name AS namespace, e.name, e.payload, e.key, e.source, e.created_by, e.created_at, e.task_id,
       e.depth, e.replay_of, NOT EXISTS (SELECT FROM sched_event_todo t WHERE t.event_id = e.id) AS matched
FROM sched_event e JOIN sched_namespace n ON n.id = e.namespace_id"""

_SHOWN = f"""
{_EVENTS} WHERE e.id = ANY(%(ids)s::uuid[]) AND e.id BETWEEN %(first)s AND %(last)s ORDER BY e.id DESC"""

# An event that was counted in a window shows what the window has started.
_EFFECTS = """
SELECT f.schedule_id, j.name AS job, s.name AS schedule, f.outcome,
       coalesce(f.task_id, (SELECT o.task_id FROM sched_event_effect o
                            WHERE o.window_id = f.window_id AND o.task_id IS NOT NULL LIMIT 1)) AS task_id,
       f.detail
FROM sched_event_effect f LEFT JOIN sched_schedule s ON s.id = f.schedule_id
LEFT JOIN sched_job j ON j.id = s.job_id
WHERE f.event_id = %(id)s ORDER BY j.name, s.name, f.schedule_id"""

_CHAIN = "SELECT max(depth) FROM sched_event_effect WHERE task_id = %(task_id)s"


async def record(connection: Connection, new: NewEvent) -> tuple[UUID, bool]:
    """Return the id of the event, and whether it is new; with a key that is known it is not."""
    row = (await connection.execute(_RECORD, asdict(new))).one()
    return row.recorded, row.is_new


async def shown(connection: Connection, id_: UUID) -> Event | None:
    row = (await connection.execute(f"{_EVENTS} WHERE e.id = %(id)s", {"id": id_})).one_or_none()
    return Event(**row.as_dict()) if row else None


async def effects(connection: Connection, id_: UUID) -> list[EventEffect]:
    """Return what became of an event, at each schedule that wanted it."""
    rows = await connection.execute(_EFFECTS, {"id": id_})
    return [EventEffect(**row.as_dict()) for row in rows]


async def walk_to(connection: Connection, wanted: EventFilter) -> KeysetQuery:
    """Return the shortest way along an index to what is wanted."""
    begins = wanted.name is not None and wanted.name.endswith("*")
    exact = wanted.name is not None and not begins
    scopes = None
    if exact or wanted.namespaces is not None:
        scopes = await access_store.namespace_ids_within(connection, wanted.namespaces)
    axis, conditions = None, []
    if scopes is not None and few(scopes):
        axis = KeysetIndex("namespace_id", "integer", "name" if exact else None)
    else:
        if wanted.namespaces is not None:
            conditions.append("r.namespace_id = ANY(%(scopes)s::integer[])")
        if exact:
            conditions.append("r.name = %(name)s")
    if begins:
        conditions.append("starts_with(r.name, %(prefix)s)")
    if wanted.key is not None:
        conditions.append("r.key = %(key)s")
    return KeysetQuery(
        "sched_event",
        " AND ".join(conditions) or EVERYTHING,
        {"name": wanted.name, "prefix": (wanted.name or "")[:-1], "key": wanted.key, "scopes": scopes},
        axis,
        scopes or (),
        ids.first_id_at(wanted.since) if wanted.since is not None else FIRST,
        ids.first_id_at(wanted.until) if wanted.until is not None else LAST,
    )


async def listed(connection: Connection, wanted: Sequence[UUID]) -> list[Event]:
    """Return these events, newest first; those that are gone are left out."""
    if not wanted:
        return []
    first, last = ids.range_of(wanted)
    rows = await connection.execute(_SHOWN, {"ids": list(wanted), "first": first, "last": last})
    return [Event(**row.as_dict()) for row in rows]


async def chain_depth(connection: Connection, task_id: UUID) -> int:
    """Return how many events have led to what a task emits; 0 when no event has started it."""
    depth = (await connection.execute(_CHAIN, {"task_id": task_id})).scalar_one()
    return 0 if depth is None else int(depth)
