"""Looking for what should not be: counts that are wrong, rows that refer to nothing.

No foreign key points to instances or to partitioned tables, and counts are kept beside what they count; both
are right as long as every transaction is. Each look is one statement and so one snapshot: a running system
does not disturb it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from hetuflow_core.limits import Scope
from hetuflow_server.postgres.database import Connection
from hetuflow_server.postgres.keyset import LAST

# Tasks that are looked at with one statement.
_WALKED: Final = 100_000

_COUNTED = """
counted AS (
  SELECT namespace_id, scope, count(*)::integer AS under_way FROM (
    SELECT i.namespace_id, s.scope
    FROM sched_task_instance i JOIN sched_placement p ON p.id = i.placement_id
    CROSS JOIN unnest(p.limit_scopes) AS s(scope)
    WHERE i.status IN ('reserved', 'running')
    UNION ALL
    SELECT namespace_id, concurrency_key FROM sched_task_instance
    WHERE status IN ('reserved', 'running') AND concurrency_key IS NOT NULL) used
  GROUP BY namespace_id, scope)"""

_WRONG_COUNTS = f"""
WITH {_COUNTED}
SELECT namespace_id, scope, coalesce(l.in_use, 0) AS in_use, coalesce(c.under_way, 0) AS under_way
FROM sched_limit l FULL JOIN counted c USING (namespace_id, scope)
WHERE coalesce(l.in_use, 0) <> coalesce(c.under_way, 0)
ORDER BY namespace_id, scope"""

# No index says what is unfinished, or the end of a task would have to change it: all tasks are looked at, so
# many at a time that no look is long.
_END_OF_WALK = "SELECT id FROM sched_task WHERE id > %(after)s ORDER BY id OFFSET %(walked)s - 1 LIMIT 1"
_TASKS_WITHOUT_INSTANCE = """
SELECT t.id FROM sched_task t
WHERE t.id > %(after)s AND t.id <= %(last)s AND t.finished_at IS NULL
  AND NOT EXISTS (SELECT FROM sched_task_instance i WHERE i.task_id = t.id)
ORDER BY t.id LIMIT %(most)s"""

_INSTANCES_WITHOUT_TASK = """
SELECT i.id FROM sched_task_instance i
WHERE NOT EXISTS (SELECT FROM sched_task t WHERE t.id = i.task_id AND t.finished_at IS NULL)
ORDER BY i.id LIMIT %(most)s"""

_INSTANCES_WITHOUT_JOB = """
SELECT i.id FROM sched_task_instance i
WHERE NOT EXISTS (SELECT FROM sched_job_version v WHERE v.job_id = i.job_id AND v.version = i.job_version)
   OR NOT EXISTS (SELECT FROM sched_placement p WHERE p.id = i.placement_id)
ORDER BY i.id LIMIT %(most)s"""


# The copy by which deadlines are found; servers from before there was one left it out.
_WITHOUT_DEADLINE = """
SELECT i.id FROM sched_task_instance i JOIN sched_task t ON t.id = i.task_id
WHERE i.deadline_at IS DISTINCT FROM t.deadline_at AND t.finished_at IS NULL
ORDER BY i.id LIMIT %(most)s"""
_COPY_DEADLINES = """
UPDATE sched_task_instance i SET deadline_at = t.deadline_at
FROM sched_task t WHERE t.id = i.task_id AND i.id = ANY(%(ids)s::uuid[])"""


@dataclass(frozen=True, slots=True)
class WrongCount:
    scope: Scope
    in_use: int
    under_way: int


async def wrong_counts(connection: Connection) -> list[WrongCount]:
    """Return limits whose count is not what is under way."""
    rows = await connection.execute(_WRONG_COUNTS)
    return [WrongCount(Scope(row.namespace_id, row.scope), row.in_use, row.under_way) for row in rows]


async def lock_counts(connection: Connection) -> None:
    """Keep everybody from taking and giving back until the commit; waits for those who are at it."""
    await connection.execute("SET LOCAL lock_timeout = '10s'")
    await connection.execute("LOCK TABLE sched_limit IN SHARE ROW EXCLUSIVE MODE")


async def tasks_without_instance(
    connection: Connection, most: int, after: UUID, walked: int = _WALKED
) -> tuple[list[UUID], UUID | None]:
    """Look at the next so many tasks; return those that nothing will ever finish, and where to go on."""
    walk = {"after": after, "walked": walked}
    end: UUID | None = (await connection.execute(_END_OF_WALK, walk)).scalar_one_or_none()
    found = await connection.execute(
        _TASKS_WITHOUT_INSTANCE, {"after": after, "last": end or LAST, "most": most}
    )
    return list(found.scalars()), end


async def instances_without_task(connection: Connection, most: int) -> list[UUID]:
    """Return instances in the queue whose task has ended, or is gone."""
    return list((await connection.execute(_INSTANCES_WITHOUT_TASK, {"most": most})).scalars())


async def instances_without_job(connection: Connection, most: int) -> list[UUID]:
    """Return instances whose job version or placement class is gone: no agent can be given them."""
    return list((await connection.execute(_INSTANCES_WITHOUT_JOB, {"most": most})).scalars())


async def without_deadline(connection: Connection, most: int) -> list[UUID]:
    """Return instances that have another deadline than their task: nobody would end that in time."""
    return list((await connection.execute(_WITHOUT_DEADLINE, {"most": most})).scalars())


async def copy_deadlines(connection: Connection, instances: Sequence[UUID]) -> int:
    """Give instances the deadline of their task; return how many were still there."""
    return (await connection.execute(_COPY_DEADLINES, {"ids": list(instances)})).rowcount


_IN_HISTORY = "SELECT id FROM sched_task_instance_history WHERE id = ANY(%(ids)s::uuid[])"


async def in_history(connection: Connection, ids: Sequence[UUID]) -> set[UUID]:
    rows = await connection.execute(_IN_HISTORY, {"ids": list(ids)})
    return set(rows.scalars())


async def params_of(connection: Connection, tasks: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    rows = await connection.execute(
        "SELECT id, params FROM sched_task WHERE id = ANY(%(ids)s::uuid[])", {"ids": list(tasks)}
    )
    return {row.id: row.params for row in rows}


async def of_daemons(connection: Connection, tasks: Sequence[UUID]) -> set[UUID]:
    """Return those of these tasks that are instances of daemons."""
    rows = await connection.execute(
        "SELECT t.id FROM sched_task t JOIN sched_schedule s ON s.id = t.schedule_id "
        "WHERE t.id = ANY(%(ids)s::uuid[]) AND s.kind = 'daemon'",
        {"ids": list(tasks)},
    )
    return set(rows.scalars())


_RENUMBER = """
UPDATE sched_task t SET seq = n.seq
FROM unnest(%(ids)s::uuid[], %(numbers)s::integer[]) AS n(id, seq)
WHERE t.id = n.id AND t.finished_at IS NULL"""


async def renumber(connection: Connection, newest: Sequence[tuple[UUID, int]]) -> None:
    """Say which number the newest instance of each of these locked tasks has."""
    parameters = {"ids": [id_ for id_, _ in newest], "numbers": [number for _, number in newest]}
    await connection.execute(_RENUMBER, parameters)
