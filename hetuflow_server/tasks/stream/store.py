"""Changes of tasks in the order in which they were committed, as far as that is settled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from hetuflow_server.postgres.connection import Connection

# How long changes are kept, and how long they are written down for a namespace that nobody follows any more.
KEPT: Final = timedelta(minutes=10)

_FOLLOW = """
INSERT INTO sched_task_follow AS f (namespace_id, since, expires_at)
SELECT id, clock_timestamp(), clock_timestamp() + %(kept)s FROM sched_namespace WHERE name = %(namespace)s
ON CONFLICT (namespace_id) DO UPDATE
SET since = CASE WHEN f.expires_at <= clock_timestamp() THEN clock_timestamp() ELSE f.since END,
    expires_at = excluded.expires_at
RETURNING namespace_id, since, clock_timestamp() AS now"""

_FOLLOWED = "SELECT namespace_id FROM sched_task_follow WHERE expires_at > clock_timestamp() ORDER BY 1"

# Whatever is not below the first is written, or may still be, by a transaction that is open.
_HORIZON = """
SELECT pg_snapshot_xmin(s)::text::bigint AS settled, pg_snapshot_xmax(s)::text::bigint AS begun,
       clock_timestamp() AS now
FROM pg_current_snapshot() s"""

_READ = """
SELECT c.xid, c.seq, c.at, c.task_id, c.task_seq, c.status, c.reason, j.name AS job, t.fire_at, t.finished_at
FROM (SELECT * FROM sched_task_change
      WHERE namespace_id = %(namespace_id)s AND (xid, seq) > (%(xid)s, %(seq)s) AND xid < %(settled)s
      ORDER BY xid, seq LIMIT %(limit)s) c
JOIN sched_task t ON t.id = c.task_id JOIN sched_job j ON j.id = t.job_id
ORDER BY c.xid, c.seq"""


@dataclass(frozen=True, slots=True)
class FollowedNamespace:
    namespace_id: int
    # Since when everything is written down.
    since: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class Horizon:
    # Of transactions: all below have ended; those from here on have not begun.
    settled: int
    begun: int
    now: datetime


@dataclass(frozen=True, slots=True)
class ChangeRow:
    xid: int
    seq: int
    at: datetime
    task_id: UUID
    task_seq: int
    status: str
    reason: str | None
    job: str
    fire_at: datetime
    finished_at: datetime | None


async def follow(connection: Connection, namespace: str) -> FollowedNamespace | None:
    """Have the changes of a namespace written down for another while; None if there is no such one."""
    row = (await connection.execute(_FOLLOW, {"namespace": namespace, "kept": KEPT})).one_or_none()
    return None if row is None else FollowedNamespace(row.namespace_id, row.since, row.now)


async def followed(connection: Connection) -> list[int]:
    """Return the namespaces whose changes are to be written down."""
    return list((await connection.execute(_FOLLOWED)).scalars())


async def horizon(connection: Connection) -> Horizon:
    return Horizon(*(await connection.execute(_HORIZON)).one())


async def read(
    connection: Connection, namespace_id: int, after: tuple[int, int], settled: int, limit: int
) -> Sequence[ChangeRow]:
    """Return changes behind a place, in their order, of transactions below one."""
    xid, seq = after
    rows = await connection.execute(
        _READ,
        {"namespace_id": namespace_id, "xid": xid, "seq": seq, "settled": settled, "limit": limit},
    )
    return [ChangeRow(*row) for row in rows]
