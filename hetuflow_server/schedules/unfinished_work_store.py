"""Counts of a job's unfinished work, for whoever plans to change the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from hetuflow_server.postgres.database import Connection

# A plan is no reason to walk through a queue of millions.
_MOST_WALKED: Final = 200_000

_LIVE = """
WITH walked AS MATERIALIZED (
  SELECT i.job_id, i.status, i.slot FROM sched_task_instance i
  WHERE i.namespace_id IN (SELECT namespace_id FROM sched_job WHERE id = ANY(%(jobs)s::uuid[]))
  LIMIT %(most)s)
SELECT job_id, count(*) FILTER (WHERE slot IS NULL) AS kept,
       count(*) FILTER (WHERE slot IS NULL AND status IN ('reserved', 'running')) AS kept_running,
       count(*) FILTER (WHERE slot IS NOT NULL) AS replaced
FROM walked WHERE job_id = ANY(%(jobs)s::uuid[]) GROUP BY job_id
UNION ALL SELECT NULL, count(*), 0, 0 FROM walked"""


@dataclass(frozen=True, slots=True)
class LiveInstances:
    kept: int
    # Of those, in agents' hands.
    kept_running: int
    # Of daemons.
    replaced: int


async def of_jobs(connection: Connection, jobs: Sequence[UUID]) -> tuple[dict[UUID, LiveInstances], bool]:
    """Return what is unfinished of each of these jobs that has any, and whether there is more."""
    if not jobs:
        return {}, False
    found = await connection.execute(_LIVE, {"jobs": list(jobs), "most": _MOST_WALKED})
    live, walked = {}, 0
    for row in found:
        if row.job_id is None:
            walked = row.kept
        else:
            live[row.job_id] = LiveInstances(row.kept, row.kept_running, row.replaced)
    return live, walked == _MOST_WALKED
