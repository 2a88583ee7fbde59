"""Nodes of flows that wait for events, and the events they may be waiting for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from hetuflow_core import ids
from hetuflow_server.events.matching_store import TakenEvent
from hetuflow_server.postgres.connection import Connection

# An id is a little older than its row where clocks differ.
_CLOCKS_DIFFER = timedelta(minutes=5)

_WAITS = """
SELECT n.flow_run_id AS run_id, n.node, n.event_name, n.started_at, r.job_id, r.job_version
FROM sched_flow_node n JOIN sched_flow_run r ON r.id = n.flow_run_id
WHERE n.namespace_id = %(namespace_id)s AND n.status = 'running' AND n.event_name IS NOT NULL
ORDER BY n.flow_run_id, n.node LIMIT %(most)s"""

_SINCE = """
SELECT id, namespace_id, name, payload, key, depth, created_at FROM sched_event
WHERE namespace_id = %(namespace_id)s AND name = %(name)s AND id > %(after)s AND created_at >= %(since)s
ORDER BY id LIMIT %(most)s"""


@dataclass(frozen=True, slots=True)
class EventWaitRow:
    run_id: UUID
    node: str
    event_name: str
    started_at: datetime
    job_id: UUID
    job_version: int


async def waits(connection: Connection, namespace_id: int, most: int) -> list[EventWaitRow]:
    rows = await connection.execute(_WAITS, {"namespace_id": namespace_id, "most": most})
    return [EventWaitRow(**row.as_dict()) for row in rows]


def first_after(since: datetime) -> UUID:
    """Return an id that no event since then is older than."""
    return ids.first_id_at(since - _CLOCKS_DIFFER)


async def events_since(
    connection: Connection, namespace_id: int, name: str, since: datetime, after: UUID, most: int
) -> list[TakenEvent]:
    """Return events of a name that were recorded since then, from behind an id on."""
    rows = await connection.execute(
        _SINCE, {"namespace_id": namespace_id, "name": name, "since": since, "after": after, "most": most}
    )
    return [TakenEvent(**row.as_dict()) for row in rows]
