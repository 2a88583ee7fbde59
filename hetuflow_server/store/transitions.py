"""The verbs that change the status of tasks and instances: nothing else writes `status`.

Every statement is guarded by the state it starts from and by whoever owns the row; a row that does not come
back was not there to change, and that is an answer. Status values are literals, so that generic plans keep
the partial indexes. Locks are taken in the order task, instance, by id within each.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from hetuflow_core.fairness import Head
from hetuflow_server.store.columns import transpose
from hetuflow_server.store.records import Claimable, Claimed, Ending, Grant, NewInstance, NewTask, TaskChange
from hetuflow_server.store.tables.queue import SHARED_COLUMNS

RESERVATION = timedelta(seconds=10)


_CREATE_TASKS = """
INSERT INTO sched_task (id, namespace_id, job_id, job_version, schedule_id, retry_of, status, params,
                        priority, fire_at, due_at, deadline_at, traceparent, created_by)
SELECT id, namespace_id, job_id, job_version, schedule_id, retry_of, 'pending', params::jsonb, priority,
       fire_at, due_at, deadline_at, traceparent, created_by
FROM unnest(%(id)s::uuid[], %(namespace_id)s::integer[], %(job_id)s::uuid[], %(job_version)s::integer[],
            %(schedule_id)s::uuid[], %(retry_of)s::uuid[], %(params)s::text[], %(priority)s::smallint[],
            %(fire_at)s::timestamptz[], %(due_at)s::timestamptz[], %(deadline_at)s::timestamptz[],
            %(traceparent)s::text[], %(created_by)s::text[])
  AS n(id, namespace_id, job_id, job_version, schedule_id, retry_of, params, priority, fire_at, due_at,
       deadline_at, traceparent, created_by)
ON CONFLICT (id) DO NOTHING RETURNING id"""

_CREATE_INSTANCES = """
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id,
                                 seq, attempt, status, priority, fire_at, due_at, lease_ms)
SELECT id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id, seq, attempt, 'pending',
       priority, fire_at, due_at, lease_ms
FROM unnest(%(id)s::uuid[], %(task_id)s::uuid[], %(namespace_id)s::integer[], %(placement_id)s::bigint[],
            %(job_id)s::uuid[], %(job_version)s::integer[], %(schedule_id)s::uuid[], %(seq)s::integer[],
            %(attempt)s::integer[], %(priority)s::smallint[], %(fire_at)s::timestamptz[],
            %(due_at)s::timestamptz[], %(lease_ms)s::integer[])
  AS n(id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id, seq, attempt, priority,
       fire_at, due_at, lease_ms)
ON CONFLICT (id) DO NOTHING"""


async def create(
    connection: AsyncConnection,
    tasks: Sequence[NewTask],
    instances: Sequence[NewInstance],
) -> set[UUID]:
    """Insert tasks and their first instances; return the tasks that were not there already."""
    created = await connection.exec_driver_sql(_CREATE_TASKS, transpose(NewTask, tasks))
    new = set(created.scalars())
    await create_instances(connection, [instance for instance in instances if instance.task_id in new])
    return new


async def create_instances(connection: AsyncConnection, instances: Sequence[NewInstance]) -> None:
    if instances:
        await connection.exec_driver_sql(_CREATE_INSTANCES, transpose(NewInstance, instances))


# The heads are probed without locks, then rows are locked by id in the order of the claim: exactly what is
# returned is locked. An array, not a join: a join may be planned as a scan of the whole queue.
_LOCK_CLAIMABLE = """
SELECT t.id, t.namespace_id, t.placement_id, t.priority, t.due_at FROM sched_task_instance t
WHERE t.status = 'pending' AND t.id = ANY(ARRAY(
  SELECT i.id
  FROM unnest(%(namespaces)s::integer[], %(placements)s::bigint[], %(priorities)s::smallint[],
              %(quotas)s::integer[]) AS h(namespace_id, placement_id, priority, quota)
  CROSS JOIN LATERAL (
    SELECT id, due_at FROM sched_task_instance
    WHERE status = 'pending' AND target_agent_id IS NULL AND namespace_id = h.namespace_id
      AND placement_id = h.placement_id AND priority = h.priority AND due_at <= now() + %(prefetch)s
      AND id <> ALL(%(without)s::uuid[])
    ORDER BY due_at, id LIMIT h.quota) i))
ORDER BY t.due_at > now(), t.priority DESC, t.due_at, t.id LIMIT %(want)s FOR UPDATE SKIP LOCKED"""

_CLAIMED = """i.id, i.task_id, i.namespace_id, i.job_id, i.job_version, i.attempt, i.token, i.claim_no,
          i.fire_at, i.due_at, i.reserved_until, i.lease_ms"""

_RESERVE = f"""
UPDATE sched_task_instance i
SET status = 'reserved', token = c.token, claim_no = claim_no + 1, agent_id = c.agent_id,
    session_id = c.session_id, request_id = c.request_id, reserved_at = clock_timestamp(),
    reserved_until = greatest(clock_timestamp(), i.due_at) + %(reservation)s
FROM unnest(%(instance_id)s::uuid[], %(token)s::uuid[], %(agent_id)s::uuid[], %(session_id)s::uuid[],
            %(request_id)s::uuid[]) AS c(id, token, agent_id, session_id, request_id)
WHERE i.id = c.id AND i.status = 'pending'
RETURNING {_CLAIMED}"""

_ALREADY_RESERVED = f"""
SELECT i.request_id, {_CLAIMED} FROM sched_task_instance i
WHERE i.request_id = ANY(%(requests)s::uuid[]) AND i.status = 'reserved'"""


async def lock_claimable(
    connection: AsyncConnection,
    quotas: Sequence[tuple[Head, int]],
    *,
    want: int,
    prefetch: timedelta,
    without: Sequence[UUID] = (),
) -> list[Claimable]:
    """Lock up to `want` instances, due before future-due, then by priority, due time and id.

    `without` are those this transaction has locked before: SKIP LOCKED does not skip one's own locks.
    """
    rows = await connection.exec_driver_sql(
        _LOCK_CLAIMABLE,
        {
            "namespaces": [head.namespace_id for head, _ in quotas],
            "placements": [head.placement_id for head, _ in quotas],
            "priorities": [head.priority for head, _ in quotas],
            "quotas": [quota for _, quota in quotas],
            "want": want,
            "prefetch": prefetch,
            "without": list(without),
        },
    )
    return [Claimable(**row._mapping) for row in rows]  # noqa: SLF001 - SQLAlchemy's public name


async def reserve(connection: AsyncConnection, grants: Sequence[Grant]) -> dict[UUID, Claimed]:
    """Reserve rows this transaction has locked for those they were dealt to."""
    if not grants:
        return {}
    rows = await connection.exec_driver_sql(
        _RESERVE,
        {**transpose(Grant, grants), "reservation": RESERVATION},
    )
    return {row.id: Claimed(**row._mapping) for row in rows}  # noqa: SLF001 - SQLAlchemy's public name


async def claimed_before(
    connection: AsyncConnection,
    requests: Sequence[UUID],
) -> dict[UUID, list[Claimed]]:
    """Return {request: what it was given already}, for requests whose answers were lost."""
    given: dict[UUID, list[Claimed]] = {}
    if requests:
        rows = await connection.exec_driver_sql(_ALREADY_RESERVED, {"requests": list(requests)})
        for row in rows:
            fields = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name
            given.setdefault(fields.pop("request_id"), []).append(Claimed(**fields))
    return given


_START = """
UPDATE sched_task_instance i
SET status = 'running', started_at = clock_timestamp(), reserved_until = NULL, request_id = NULL,
    lease_until = clock_timestamp() + make_interval(secs => lease_ms / 1000.0)
FROM unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) AS r(id, token)
WHERE i.id = r.id AND i.token = r.token AND i.status = 'reserved' AND NOT i.cancel_requested
  AND i.reserved_until > clock_timestamp()
RETURNING i.id"""


async def start(connection: AsyncConnection, held: Sequence[tuple[UUID, UUID]]) -> set[UUID]:
    """Commit reservations: token, still reserved, not cancelled, not expired."""
    rows = await connection.exec_driver_sql(_START, _pairs(held))
    return set(rows.scalars())


_RELEASE = """
UPDATE sched_task_instance i
SET status = 'pending', token = NULL, agent_id = NULL, session_id = NULL, request_id = NULL,
    reserved_at = NULL, reserved_until = NULL
FROM unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) AS r(id, token)
WHERE i.id = r.id AND i.token = r.token AND i.status = 'reserved' AND NOT i.cancel_requested
RETURNING i.id"""

_RELEASE_EXPIRED = """
UPDATE sched_task_instance
SET status = 'pending', token = NULL, agent_id = NULL, session_id = NULL, request_id = NULL,
    reserved_at = NULL, reserved_until = NULL
WHERE id = ANY(ARRAY(
  SELECT id FROM sched_task_instance
  WHERE status = 'reserved' AND namespace_id = %(namespace_id)s AND reserved_until < clock_timestamp()
    AND NOT cancel_requested
  ORDER BY id LIMIT %(most)s FOR UPDATE SKIP LOCKED))
  AND status = 'reserved' AND reserved_until < clock_timestamp()
RETURNING id"""

_RELEASE_SESSION = """
UPDATE sched_task_instance
SET status = 'pending', token = NULL, agent_id = NULL, session_id = NULL, request_id = NULL,
    reserved_at = NULL, reserved_until = NULL
WHERE agent_id = %(agent_id)s AND session_id <> %(session_id)s AND status = 'reserved'
  AND NOT cancel_requested
RETURNING id"""


async def release(connection: AsyncConnection, held: Sequence[tuple[UUID, UUID]]) -> set[UUID]:
    """Give reservations back unstarted: the same instance is pending again, nothing is spent."""
    rows = await connection.exec_driver_sql(_RELEASE, _pairs(held))
    return set(rows.scalars())


async def release_expired(connection: AsyncConnection, namespace_id: int, most: int) -> int:
    rows = await connection.exec_driver_sql(_RELEASE_EXPIRED, {"namespace_id": namespace_id, "most": most})
    return len(rows.all())


async def release_former_sessions(connection: AsyncConnection, agent_id: UUID, session_id: UUID) -> int:
    """Release what earlier process lives of an agent had reserved and not started."""
    rows = await connection.exec_driver_sql(
        _RELEASE_SESSION,
        {"agent_id": agent_id, "session_id": session_id},
    )
    return len(rows.all())


# The history keeps the token of whoever finished it (a rescued instance's former holder comes too late) and
# when its process really started, which may be up to a second after the start was committed.
_MOVED = {"status": "r_status", "token": "r_token", "started_at": "coalesce(r_started_at, started_at)"}
# The move: one statement takes the row out of the queue and writes it into the history.
_END = f"""
WITH r AS (
  SELECT * FROM unnest(%(instance_id)s::uuid[], %(token)s::uuid[], %(status)s::text[],
                       %(exit_code)s::integer[], %(signal)s::smallint[], %(reason)s::text[],
                       %(message)s::text[], %(started_at)s::timestamptz[], %(finished_at)s::timestamptz[])
    AS r(id, r_token, r_status, exit_code, signal, reason, message, r_started_at, r_finished_at)),
ended AS (
  DELETE FROM sched_task_instance i USING r WHERE i.id = r.id AND {{guard}}
  RETURNING i.*, r.r_token, r.r_status, r.exit_code, r.signal, r.reason, r.message, r.r_started_at,
            r.r_finished_at)
INSERT INTO sched_task_instance_history
  ({", ".join(SHARED_COLUMNS)}, reason, exit_code, signal, message, finished_at)
SELECT {", ".join(_MOVED.get(column, column) for column in SHARED_COLUMNS)},
       reason, exit_code, signal, message, coalesce(r_finished_at, clock_timestamp())
FROM ended RETURNING id"""

_END_BY_OWNER = _END.format(guard="i.token = r.r_token AND i.status IN ('reserved', 'running')")
_END_LOST = _END.format(guard="i.status = 'running' AND i.lease_until < clock_timestamp()")
_END_CANCELLED = _END.format(
    guard="(i.status IN ('held', 'pending') "
    "OR (i.status = 'reserved' AND i.cancel_requested AND i.reserved_until < clock_timestamp()))",
)


async def finish(connection: AsyncConnection, endings: Sequence[Ending]) -> set[UUID]:
    """End claims by their tokens; return those that were still theirs."""
    return await _end(connection, _END_BY_OWNER, endings)


async def lose(connection: AsyncConnection, endings: Sequence[Ending]) -> set[UUID]:
    """End running instances whose lease has run out; the guard is in the statement, not in a look before."""
    return await _end(connection, _END_LOST, endings)


async def cancel_unclaimed(connection: AsyncConnection, endings: Sequence[Ending]) -> set[UUID]:
    """End what nobody runs: held or pending ones, and cancelled reservations that have expired."""
    return await _end(connection, _END_CANCELLED, endings)


async def _end(connection: AsyncConnection, statement: str, endings: Sequence[Ending]) -> set[UUID]:
    rows = await connection.exec_driver_sql(statement, transpose(Ending, endings))
    return set(rows.scalars())


_REQUEST_CANCEL = """
UPDATE sched_task_instance SET cancel_requested = true
WHERE id = ANY(%(ids)s::uuid[]) AND status IN ('reserved', 'running')
RETURNING id, agent_id"""


async def request_cancel(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Ask the agents that hold these instances to end them; return instance → agent."""
    rows = await connection.exec_driver_sql(_REQUEST_CANCEL, {"ids": list(ids)})
    return {row.id: row.agent_id for row in rows}


# Written before anything of the task is ended, so that whoever ends it knows why, however late that is.
_MARK_OVERDUE = """
UPDATE sched_task SET reason = 'deadline'
WHERE id = ANY(%(ids)s::uuid[]) AND status IN ('pending', 'waiting_retry')
  AND deadline_at <= clock_timestamp()
RETURNING id"""


async def mark_overdue(connection: AsyncConnection, ids: Sequence[UUID]) -> set[UUID]:
    """Note the deadline as the reason of locked tasks that have reached it; return those that have."""
    rows = await connection.exec_driver_sql(_MARK_OVERDUE, {"ids": list(ids)})
    return set(rows.scalars())


_WRITE_TASKS = """
UPDATE sched_task t
SET status = c.status, reason = c.reason, seq = c.seq, attempts = c.attempts, losses = c.losses,
    exit_code = c.exit_code, due_at = greatest(t.due_at, c.due_at),
    finished_at = CASE WHEN c.status IN ('succeeded', 'failed', 'cancelled', 'skipped')
                       THEN clock_timestamp() END
FROM unnest(%(id)s::uuid[], %(status)s::text[], %(reason)s::text[], %(seq)s::integer[],
            %(attempts)s::integer[], %(losses)s::integer[], %(exit_code)s::integer[],
            %(due_at)s::timestamptz[])
  AS c(id, status, reason, seq, attempts, losses, exit_code, due_at)
WHERE t.id = c.id AND t.status IN ('pending', 'waiting_retry')"""


async def write_tasks(connection: AsyncConnection, changes: Sequence[TaskChange]) -> None:
    """Write what became of tasks that the caller has locked."""
    if changes:
        await connection.exec_driver_sql(_WRITE_TASKS, transpose(TaskChange, changes))


def _pairs(held: Sequence[tuple[UUID, UUID]]) -> dict[str, Any]:
    return {"ids": [id_ for id_, _ in held], "tokens": [token for _, token in held]}
