"""The verbs that change the status of tasks and instances: nothing else writes `status`.

Every statement is guarded by the state it starts from and by whoever owns the row; a row that does not come
back was not there to change, and that is an answer. Status values are literals, so that generic plans keep
the partial indexes. Locks are taken in the order task, instance, by id within each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from hetuflow_core.ids import range_of
from hetuflow_server.postgres.arrays import Uuids
from hetuflow_server.postgres.batches import field_names, transpose
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.sql_fragments import LEASE, SHARED_COLUMNS, STATUS_BY_ID, by_key
from hetuflow_server.queue.rows import Ended, EndedGroup, Ending, Freed, Succeeded, TaskChange

# All or which: that all have started is one row without an id.
_START = f"""
WITH started AS (
UPDATE sched_task_instance i
SET status = 'running', started_at = clock_timestamp(), reserved_until = NULL, request_id = NULL,
    lease_until = clock_timestamp() + {LEASE}
FROM unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) AS r(id, token)
WHERE {by_key("i.id", "r.id")} AND i.token = r.token AND {STATUS_BY_ID} = 'reserved'
  AND NOT i.cancel_requested AND i.reserved_until > clock_timestamp()
RETURNING i.id),
counted AS MATERIALIZED (SELECT count(*) AS started FROM started)
SELECT NULL::uuid AS id FROM counted WHERE started = cardinality(%(ids)s::uuid[])
UNION ALL
SELECT id FROM started WHERE (SELECT started FROM counted) < cardinality(%(ids)s::uuid[])"""


async def start(connection: Connection, held: Sequence[tuple[UUID, UUID]]) -> set[UUID]:
    """Commit reservations: token, still reserved, not cancelled, not expired."""
    rows = await connection.execute(_START, _pairs(held), binary=True)
    started = rows.scalars()
    return set(started) if None not in started else {id_ for id_, _ in held}


_RELEASE_WHERE = """
UPDATE sched_task_instance i
SET status = 'pending', token = NULL, agent_id = NULL, session_id = NULL, request_id = NULL,
    reserved_at = NULL, reserved_until = NULL, started_at = NULL, lease_until = NULL
{which} AND {status} AND NOT i.cancel_requested
RETURNING i.id, i.namespace_id, i.placement_id, i.concurrency_key, true"""

_HELD = f"""FROM unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) AS r(id, token)
WHERE {by_key("i.id", "r.id")} AND i.token = r.token"""
_RELEASE = _RELEASE_WHERE.format(which=_HELD, status=f"{STATUS_BY_ID} IN ('reserved', 'running')")
_RELEASE_UNSTARTED = _RELEASE_WHERE.format(which=_HELD, status=f"{STATUS_BY_ID} = 'reserved'")
_RELEASE_EXPIRED = _RELEASE_WHERE.format(
    which="""WHERE i.id = ANY(ARRAY(
  SELECT id FROM sched_task_instance
  WHERE claimed AND status = 'reserved' AND namespace_id = %(namespace_id)s
    AND reserved_until < clock_timestamp() AND NOT cancel_requested
  ORDER BY id LIMIT %(most)s FOR UPDATE SKIP LOCKED)) AND i.reserved_until < clock_timestamp()""",
    status=f"{STATUS_BY_ID} = 'reserved'",
)
_RELEASE_SESSION = _RELEASE_WHERE.format(
    which="WHERE i.agent_id = %(agent_id)s AND i.session_id IS DISTINCT FROM %(session_id)s::uuid",
    status="i.status = 'reserved'",
)


async def release(connection: Connection, held: Sequence[tuple[UUID, UUID]]) -> list[Freed]:
    """Give claims back, by (instance, token): the same instance is pending again, nothing is spent.

    Whoever holds the token says that nothing has begun; its start may have been committed.

    As with every verb below that frees something, the caller gives back what it had taken of limits.
    """
    return _freed(await connection.execute(_RELEASE, _pairs(held)))


async def release_unstarted(connection: Connection, held: Sequence[tuple[UUID, UUID]]) -> list[Freed]:
    """Take reservations back from somebody who is gone.

    What has been started since is somebody's: the same request may have come once more, and been given these.
    """
    return _freed(await connection.execute(_RELEASE_UNSTARTED, _pairs(held)))


async def release_expired(connection: Connection, namespace_id: int, most: int) -> list[Freed]:
    return _freed(await connection.execute(_RELEASE_EXPIRED, {"namespace_id": namespace_id, "most": most}))


async def release_former_sessions(
    connection: Connection, agent_id: UUID, session_id: UUID | None
) -> list[Freed]:
    """Release what process lives of an agent other than this one had reserved and not started."""
    parameters = {"agent_id": agent_id, "session_id": session_id}
    return _freed(await connection.execute(_RELEASE_SESSION, parameters))


def _freed(rows: Iterable[Sequence[Any]]) -> list[Freed]:
    return [Freed(*row) for row in rows]


# Whether the namespace of an ended task has schedules that run jobs after other jobs. The first condition is
# evaluated once for all rows, and is false if no namespace has such schedules.
_FOLLOWED = """EXISTS (
    SELECT FROM sched_schedule s WHERE s.kind = 'flow' AND s.enabled AND s.deleted_at IS NULL)
  AND EXISTS (
    SELECT FROM sched_schedule s
    WHERE s.namespace_id = ended.namespace_id AND s.kind = 'flow' AND s.enabled AND s.deleted_at IS NULL)"""
# The history keeps the token of whoever finished it (a rescued instance's former holder comes too late) and
# when its process really started, which may be up to a second after the start was committed.
_COMPUTED = {
    "claimed": "status IN ('reserved', 'running') AS claimed",
    "followed": f"{_FOLLOWED} AS followed",
}
_ENDED = ", ".join(_COMPUTED.get(name, name) for name in field_names(Ended))
_MOVED = {"status": "r_status", "token": "r_token", "started_at": "coalesce(r_started_at, started_at)"}
# The move: one statement takes the row out of the queue and writes it into the history.
_END = f"""
WITH r AS (
  SELECT * FROM unnest(%(instance_id)s::uuid[], %(token)s::uuid[], %(status)s::text[],
                       %(exit_code)s::integer[], %(signal)s::smallint[], %(reason)s::text[],
                       %(message)s::text[], %(started_at)s::timestamptz[], %(finished_at)s::timestamptz[],
                       %(output)s::text[], %(usage)s::text[])
    AS r(id, r_token, r_status, exit_code, signal, reason, message, r_started_at, r_finished_at, output,
         usage)),
ended AS (
  DELETE FROM sched_task_instance i USING r WHERE {by_key("i.id", "r.id")} AND {{guard}}
  RETURNING i.*, r.r_token, r.r_status, r.exit_code, r.signal, r.reason, r.message, r.r_started_at,
            r.r_finished_at, r.output, r.usage),
moved AS (
  INSERT INTO sched_task_instance_history
    ({", ".join(SHARED_COLUMNS)}, reason, exit_code, signal, message, finished_at, output, usage)
  SELECT {", ".join(_MOVED.get(column, column) for column in SHARED_COLUMNS)},
         reason, exit_code, signal, message, coalesce(r_finished_at, clock_timestamp()), output::jsonb,
         usage::jsonb
  FROM ended)
SELECT {_ENDED} FROM ended"""

_END_BY_OWNER = _END.format(guard=f"i.token = r.r_token AND {STATUS_BY_ID} IN ('reserved', 'running')")
_END_STRANDED = _END.format(
    guard="NOT EXISTS (SELECT FROM sched_task t WHERE t.id = i.task_id AND t.finished_at IS NULL)",
)
_END_LOST = _END.format(guard=f"{STATUS_BY_ID} = 'running' AND i.lease_until < clock_timestamp()")
_END_ORPHANED = _END.format(
    guard="i.status = 'running' AND NOT EXISTS ("
    "SELECT FROM sched_agent a WHERE a.id = i.agent_id AND a.session_id = i.session_id)",
)
_END_CANCELLED = _END.format(
    guard="(i.status IN ('held', 'pending') "
    "OR (i.status = 'reserved' AND i.cancel_requested AND i.reserved_until < clock_timestamp()))",
)
# A run that has ended, and never one that runs: nobody holds a token of its instance.
_END_FLOW = _END.format(
    guard="i.status = 'running' AND i.token IS NULL AND EXISTS ("
    "SELECT FROM sched_flow_run f WHERE f.id = i.task_id AND f.finished_at IS NOT NULL)",
)
_END_WAITING = _END.format(guard="i.held_reason IN ('overlap', 'queue')")


# An end in success asks nothing: the task is written, which locks it, and the instance moves. What this does
# not end (because its task has ended, is not where its id says, or belongs to a flow, whose run has to be
# locked first) is left to `finish`. Both are met in the order of their ids, and no instance before all tasks.
# What is found is sorted apart (OFFSET 0), or an index of that order would be gone through to find it.
# The range of ids leaves out partitions. Said plainly it would look like a good way to find the rows, on
# tables that are almost empty when the plan is made, and be gone through once for each of them.
_WITHIN = "(t.id > %(first)s OR t.id = %(first)s) AND (t.id < %(last)s OR t.id = %(last)s)"
# When all have ended, those whose end entails nothing but what their class gives back are summed up, which is
# nearly all of them. The last row counts.
_SUMMED_UP = """%(summed_up)s AND (SELECT ended FROM counted) = cardinality(%(instance_id)s::uuid[])
  AND concurrency_key IS NULL AND schedule_id IS NULL AND backfill_id IS NULL AND slot IS NULL
  AND NOT followed"""
_NOTHING_MORE = ", ".join(["NULL"] * (len(field_names(Ended)) - 3))
_SUCCEED = f"""
WITH r AS MATERIALIZED (
  SELECT * FROM (SELECT i.task_id, r.* FROM unnest(
      %(instance_id)s::uuid[], %(token)s::uuid[], %(exit_code)s::integer[], %(signal)s::smallint[],
      %(reason)s::text[], %(message)s::text[], %(started_at)s::timestamptz[], %(finished_at)s::timestamptz[],
      %(output)s::text[], %(usage)s::text[])
    AS r(id, r_token, exit_code, signal, reason, message, r_started_at, r_finished_at, output, usage)
  JOIN sched_task_instance i ON {by_key("i.id", "r.id")}
  WHERE i.token = r.r_token AND i.flow_run_id IS NULL AND {STATUS_BY_ID} IN ('reserved', 'running')
  OFFSET 0) found ORDER BY task_id),
written AS (
  UPDATE sched_task t
  SET status = 'succeeded', reason = r.reason, attempts = t.attempts + 1, exit_code = r.exit_code,
      output = r.output::jsonb, finished_at = clock_timestamp()
  FROM r WHERE {by_key("t.id", "r.task_id")} AND {_WITHIN} AND t.status IN ('pending', 'waiting_retry')
  RETURNING r.*),
ended AS (
  DELETE FROM sched_task_instance i USING (SELECT * FROM written ORDER BY id) AS r
  WHERE {by_key("i.id", "r.id")} AND i.token = r.r_token AND {STATUS_BY_ID} IN ('reserved', 'running')
  RETURNING i.*, 'succeeded' AS r_status, r.r_token, r.exit_code, r.signal, r.reason, r.message,
            r.r_started_at, r.r_finished_at, r.output, r.usage),
moved AS (
  INSERT INTO sched_task_instance_history
    ({", ".join(SHARED_COLUMNS)}, reason, exit_code, signal, message, finished_at, output, usage)
  SELECT {", ".join(_MOVED.get(column, column) for column in SHARED_COLUMNS)},
         reason, exit_code, signal, message, coalesce(r_finished_at, clock_timestamp()), output::jsonb,
         usage::jsonb
  FROM ended),
told AS MATERIALIZED (SELECT {_ENDED} FROM ended),
counted AS MATERIALIZED (SELECT count(*) AS ended FROM told)
SELECT NULL::bigint, NULL::bigint, {", ".join(field_names(Ended))} FROM told
WHERE NOT ({_SUMMED_UP})
UNION ALL
SELECT NULL, count(*), NULL, namespace_id, placement_id, {_NOTHING_MORE} FROM told
WHERE {_SUMMED_UP}
GROUP BY namespace_id, placement_id
UNION ALL
SELECT (SELECT count(*) FROM written), ended, NULL, NULL, NULL, {_NOTHING_MORE} FROM counted"""


# What is said of an end in success.
_TOLD = tuple(name for name in field_names(Ending) if name not in {"status", "oom"})


async def succeed(connection: Connection, endings: Sequence[Ending], *, sum_up: bool) -> Succeeded:
    """End claims that succeeded, by their tokens, and their tasks with them; return those that could be.

    Those that entail nothing are summed up, if they may be. Whoever ended one of them otherwise while its
    task was waited for has changed what this was decided by: then nothing is returned, and all is undone.
    """
    first, last = range_of(ending.instance_id for ending in endings)
    parameters = {**transpose(Ending, endings, _TOLD), "first": first, "last": last, "summed_up": sum_up}
    *rows, totals = await connection.execute(_SUCCEED, parameters, binary=True)
    written, count = totals[:2]
    if written != count:
        await connection.rollback()
        return Succeeded(set(), [], [])
    each = [Ended(*row[2:]) for row in rows if row[2] is not None]
    sums = [EndedGroup(row[3], row[4], row[1]) for row in rows if row[2] is None]
    all_ended = count == len(endings)
    return Succeeded(
        {ending.instance_id for ending in endings} if all_ended else {one.id for one in each}, each, sums
    )


async def finish(connection: Connection, endings: Sequence[Ending]) -> list[Ended]:
    """End claims by their tokens; return those that were still theirs."""
    return await _end(connection, _END_BY_OWNER, endings)


async def lose(connection: Connection, endings: Sequence[Ending]) -> list[Ended]:
    """End running instances whose lease has run out; the guard is in the statement, not in a look before."""
    return await _end(connection, _END_LOST, endings)


async def lose_orphaned(connection: Connection, endings: Sequence[Ending]) -> list[Ended]:
    """End running instances whose agent's session is over, without waiting for their lease."""
    return await _end(connection, _END_ORPHANED, endings)


async def cancel_unclaimed(connection: Connection, endings: Sequence[Ending]) -> list[Ended]:
    """End what nobody runs: held or pending ones, and cancelled reservations that have expired."""
    return await _end(connection, _END_CANCELLED, endings)


async def skip_waiting(connection: Connection, endings: Sequence[Ending]) -> list[Ended]:
    """End fires that waited for another of their schedule."""
    return await _end(connection, _END_WAITING, endings)


async def finish_flow(connection: Connection, endings: Sequence[Ending]) -> list[Ended]:
    """End the instances that stand for flow runs which have ended."""
    return await _end(connection, _END_FLOW, endings)


_START_FLOW = """
UPDATE sched_task_instance SET status = 'running', held_reason = NULL, started_at = clock_timestamp()
WHERE id = %(id)s AND status = 'held' AND held_reason = 'flow' AND due_at <= clock_timestamp()
RETURNING id"""


async def start_flow(connection: Connection, instance_id: UUID) -> bool:
    """Let a flow's own instance run, without an agent and without a lease."""
    row = await connection.execute(_START_FLOW, {"id": instance_id})
    return row.scalar_one_or_none() is not None


async def end_stranded(connection: Connection, endings: Sequence[Ending]) -> list[Ended]:
    """End instances whose task has ended or is gone, which the doctor found."""
    return await _end(connection, _END_STRANDED, endings)


async def _end(connection: Connection, statement: str, endings: Sequence[Ending]) -> list[Ended]:
    rows = await connection.execute(statement, transpose(Ending, endings), binary=True)
    return [Ended(*row) for row in rows]


_REQUEST_CANCEL = """
UPDATE sched_task_instance SET cancel_requested = true
WHERE id = ANY(%(ids)s::uuid[]) AND status IN ('reserved', 'running')
RETURNING id, agent_id"""


# First, because whoever ends what waits locks limits, and then waits for no instance any more.
_LOCK_INSTANCES = """
SELECT id FROM sched_task_instance WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR UPDATE"""


async def lock_instances(connection: Connection, ids: Sequence[UUID]) -> None:
    """Lock instances of locked tasks: nobody claims them or gives them back until the commit."""
    await connection.execute(_LOCK_INSTANCES, {"ids": list(ids)})


async def request_cancel(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, UUID | None]:
    """Ask those who run these instances to end them; return instance → agent, None for a flow's own."""
    rows = await connection.execute(_REQUEST_CANCEL, {"ids": list(ids)})
    return {row.id: row.agent_id for row in rows}


# Written before anything of the task is ended, so that whoever ends it knows why, however late that is.
_MARK_OVERDUE = """
UPDATE sched_task SET reason = 'deadline'
WHERE id = ANY(%(ids)s::uuid[]) AND status IN ('pending', 'waiting_retry')
  AND deadline_at <= clock_timestamp()
RETURNING id"""


async def mark_overdue(connection: Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Note the deadline as the reason of locked tasks that have reached it; return those that have."""
    rows = await connection.execute(_MARK_OVERDUE, {"ids": list(ids)})
    return set(rows.scalars())


async def mark_overlapped(connection: Connection, ids: Sequence[UUID]) -> None:
    """Note as the reason of tasks that they have to make way for a newer fire of their schedule."""
    await connection.execute(
        "UPDATE sched_task SET reason = 'overlap' "
        "WHERE id = ANY(%(ids)s::uuid[]) AND status IN ('pending', 'waiting_retry')",
        {"ids": sorted(set(ids))},
    )


# Failures are also kept apart: an index of them would make the end of every task rewrite its index entries.
_WRITE_TASKS = f"""
WITH written AS (
UPDATE sched_task t
SET status = c.status, reason = c.reason, seq = c.seq, attempts = c.attempts, losses = c.losses,
    exit_code = c.exit_code, output = c.output::jsonb, due_at = greatest(t.due_at, c.due_at),
    finished_at = CASE WHEN c.status IN ('succeeded', 'failed', 'cancelled', 'skipped')
                       THEN clock_timestamp() END
FROM unnest(%(id)s::uuid[], %(status)s::text[], %(reason)s::text[], %(seq)s::integer[],
            %(attempts)s::integer[], %(losses)s::integer[], %(exit_code)s::integer[],
            %(due_at)s::timestamptz[], %(output)s::text[])
  AS c(id, status, reason, seq, attempts, losses, exit_code, due_at, output)
WHERE {by_key("t.id", "c.id")} AND {_WITHIN} AND t.status IN ('pending', 'waiting_retry')
RETURNING t.id, t.namespace_id, t.status, t.finished_at)
INSERT INTO sched_task_failure (namespace_id, failed_at, task_id)
SELECT namespace_id, finished_at, id FROM written WHERE status = 'failed'"""


async def write_tasks(connection: Connection, changes: Sequence[TaskChange]) -> None:
    """Write what became of tasks that the caller has locked."""
    if changes:
        first, last = range_of(change.id for change in changes)
        await connection.execute(
            _WRITE_TASKS, {**transpose(TaskChange, changes), "first": first, "last": last}
        )


def _pairs(held: Sequence[tuple[UUID, UUID]]) -> dict[str, Any]:
    return {"ids": Uuids([id_ for id_, _ in held]), "tokens": Uuids([token for _, token in held])}
