"""Servers as rows: one for each process life, kept alive by heartbeats."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from hetuflow_core.resources.cluster import Leader, Server
from hetuflow_server.cluster.leadership_store import LOCK
from hetuflow_server.postgres.connection import Connection

# A server that slept for so long that its row was removed is back with its next heartbeat.
_HEARTBEAT = """
INSERT INTO sched_server (id, hostname, url, version, weight)
VALUES (%(id)s, %(hostname)s, %(url)s, %(version)s, %(weight)s)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp(), stopped_at = NULL
RETURNING clock_timestamp()"""

_STOP = """
UPDATE sched_server SET stopped_at = clock_timestamp() WHERE id = %(id)s AND stopped_at IS NULL"""

# A bound one is kept: its namespaces move first.
_FORGET = """
DELETE FROM sched_server s
WHERE coalesce(s.stopped_at, s.heartbeat_at) < clock_timestamp() - %(keep)s
  AND NOT EXISTS (SELECT FROM sched_namespace_binding b WHERE b.server_id = s.id)"""


_SERVERS = """
SELECT s.id, s.hostname, s.url, s.version, s.weight,
       CASE WHEN s.stopped_at IS NOT NULL THEN 'stopped'
            WHEN s.heartbeat_at > clock_timestamp() - %(dead_after)s THEN 'live' ELSE 'dead' END AS status,
       l.holder IS NOT NULL AS leader,
       (SELECT count(*) FROM sched_namespace_binding b WHERE b.server_id = s.id) AS namespaces,
       s.started_at, s.heartbeat_at, s.stopped_at
FROM sched_server s
LEFT JOIN distributed_lock l ON l.name = %(lock)s AND l.holder = s.id AND l.expires_at > clock_timestamp()
WHERE (%(id)s::uuid IS NULL OR s.id = %(id)s) AND (%(after)s::uuid IS NULL OR s.id < %(after)s)
ORDER BY s.id DESC LIMIT %(limit)s"""

_LEADER = """
SELECT holder, epoch, acquired_at, renewed_at,
       CASE WHEN isfinite(expires_at) THEN expires_at END AS expires_at,
       expires_at > clock_timestamp() AS held
FROM distributed_lock WHERE name = %(lock)s"""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a server says of itself; the id is drawn anew at every start of the process."""

    id: UUID
    hostname: str
    url: str
    version: str
    weight: int


async def heartbeat(connection: Connection, server: ServerIdentity) -> datetime:
    """Be there; return what time it is at the database."""
    found = await connection.execute(
        _HEARTBEAT,
        {
            "id": server.id,
            "hostname": server.hostname,
            "url": server.url,
            "version": server.version,
            "weight": server.weight,
        },
    )
    told: datetime = found.scalar_one()
    return told


async def list_servers(
    connection: Connection,
    dead_after: timedelta,
    *,
    id_: UUID | None = None,
    after: UUID | None = None,
    limit: int,
) -> list[Server]:
    """Return servers, the youngest first: their ids begin with the time they were started."""
    rows = await connection.execute(
        _SERVERS, {"dead_after": dead_after, "lock": LOCK, "id": id_, "after": after, "limit": limit}
    )
    return [Server(**row.as_dict()) for row in rows]


async def count_servers(connection: Connection) -> int:
    return int((await connection.execute("SELECT count(*) FROM sched_server")).scalar_one())


async def leader(connection: Connection, dead_after: timedelta) -> Leader:
    row = (await connection.execute(_LEADER, {"lock": LOCK})).one_or_none()
    if row is None:
        return Leader(None, 0, None, None, None)
    if not row.held:
        return Leader(None, row.epoch, None, row.renewed_at, row.expires_at)
    found = await list_servers(connection, dead_after, id_=row.holder, limit=1)
    return Leader(found[0] if found else None, row.epoch, row.acquired_at, row.renewed_at, row.expires_at)


async def stop(connection: Connection, id_: UUID) -> None:
    await connection.execute(_STOP, {"id": id_})


async def forget(connection: Connection, keep: timedelta) -> int:
    """Remove servers that have been gone for `keep`; return how many."""
    return (await connection.execute(_FORGET, {"keep": keep})).rowcount
