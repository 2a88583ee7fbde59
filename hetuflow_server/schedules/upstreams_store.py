"""Schedules that fire when other jobs have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core.ids import range_of
from hetuflow_server.postgres.connection import Connection

_FOLLOWERS = """
SELECT s.id AS schedule_id, s.spec, s.job_id, j.version AS job_version, t.id AS upstream_id,
       t.finished_at AS ended_at
FROM sched_task t
JOIN sched_job u ON u.id = t.job_id
JOIN sched_schedule s ON s.namespace_id = t.namespace_id AND s.kind = 'flow' AND s.enabled
  AND s.deleted_at IS NULL AND s.spec->'flow'->'after' ? u.name
  AND (s.spec->'flow'->>'on' = 'done' OR s.spec->'flow'->>'on' = t.status)
JOIN sched_job j ON j.id = s.job_id AND j.enabled AND j.deleted_at IS NULL
WHERE t.id = ANY(%(tasks)s::uuid[]) AND t.id BETWEEN %(first)s AND %(last)s AND t.finished_at IS NOT NULL
  AND t.flow_run_id IS NULL
ORDER BY t.id, s.id"""


@dataclass(frozen=True, slots=True)
class Follower:
    """A fire of a schedule, because of one upstream."""

    schedule_id: UUID
    spec: dict[str, Any]
    job_id: UUID
    job_version: int
    upstream_id: UUID
    ended_at: datetime


async def followers(connection: Connection, tasks: Sequence[UUID]) -> list[Follower]:
    """Return what is to fire because these tasks have ended."""
    first, last = range_of(tasks)
    rows = await connection.execute(_FOLLOWERS, {"tasks": list(tasks), "first": first, "last": last})
    return [Follower(**row.as_dict()) for row in rows]
