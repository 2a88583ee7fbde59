"""Reading tasks and their instances, and locking tasks before something is done to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from hetuflow_core.ids import range_of
from hetuflow_core.resources.tasks import Task, TaskDetail, TaskInstance
from hetuflow_server.postgres.arrays import Uuids
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.queue import late_reports_store


@dataclass(frozen=True, slots=True)
class LockedTask:
    id: UUID
    namespace_id: int
    job_id: UUID
    job_version: int
    schedule_id: UUID | None
    status: str
    reason: str | None
    priority: int
    fire_at: datetime
    due_at: datetime
    deadline_at: datetime | None
    # By the database's clock.
    overdue: bool
    seq: int
    attempts: int
    losses: int
    finished_at: datetime | None
    backfill_id: UUID | None
    # The node it is a task of.
    flow_run_id: UUID | None
    flow_node: str | None
    # It is the node's own work, not that of a job the node calls.
    own_work: bool

    @property
    def work(self) -> str | None:
        """The node whose own work it is."""
        return self.flow_node if self.own_work else None


@dataclass(frozen=True, slots=True)
class LiveInstance:
    id: UUID
    task_id: UUID
    placement_id: int
    lease_ms: int
    status: str
    # Of whoever has claimed it.
    token: UUID | None
    claim_no: int
    cancel_requested: bool
    concurrency_key: str | None
    target_agent_id: UUID | None
    # Of a daemon.
    slot: int | None


_LOCK = """
SELECT id, namespace_id, job_id, job_version, schedule_id, status, reason, priority, fire_at, due_at,
       deadline_at, coalesce(deadline_at <= clock_timestamp(), false) AS overdue, seq, attempts, losses,
       finished_at, backfill_id, flow_run_id, flow_node, flow_context IS NOT NULL AS own_work
FROM sched_task WHERE id = ANY({ids}) AND id BETWEEN %(first)s AND %(last)s ORDER BY id FOR UPDATE"""
# The range lets the planner leave out the partitions that cannot hold them.
_LOCK_BY_ID = _LOCK.format(ids="%(ids)s::uuid[]")
_LOCK_OF_INSTANCES = _LOCK.format(
    ids="ARRAY(SELECT task_id FROM sched_task_instance WHERE id = ANY(%(ids)s::uuid[]))"
)

_LIVE = """
SELECT id, task_id, placement_id, coalesce(lease_ms, 0) AS lease_ms, status, token, claim_no,
       cancel_requested, concurrency_key, target_agent_id, slot
FROM sched_task_instance WHERE {by} = ANY(%(ids)s::uuid[])"""

# What a task is doing is shown from its live instance: the stored status says only how far it has come.
_SHOWN_STATUS = """
CASE WHEN t.finished_at IS NOT NULL THEN t.status
     WHEN EXISTS (SELECT FROM sched_task_instance i
                  WHERE i.task_id = t.id AND i.status = 'running') THEN 'running'
     WHEN t.status = 'waiting_retry' AND t.due_at <= clock_timestamp() THEN 'pending'
     ELSE t.status END"""

# Likewise why it waits, if something holds it.
_SHOWN_REASON = """
CASE WHEN t.finished_at IS NOT NULL THEN t.reason
     ELSE coalesce((SELECT i.held_reason FROM sched_task_instance i
                    WHERE i.task_id = t.id AND i.status = 'held' LIMIT 1), t.reason) END"""

COLUMNS = f"""
t.id, n.name AS namespace, j.name AS job, t.job_id, t.job_version, {_SHOWN_STATUS} AS status,
{_SHOWN_REASON} AS reason, t.params, t.priority, t.fire_at, t.due_at, t.attempts, t.losses, t.exit_code,
t.output, t.retry_of, t.created_by, t.created_at, t.finished_at, t.flow_run_id, t.flow_node, t.map_index"""

FROM = """
FROM sched_task t JOIN sched_namespace n ON n.id = t.namespace_id JOIN sched_job j ON j.id = t.job_id"""

INSTANCE_COLUMNS = """
i.id, i.task_id, i.seq, i.attempt, i.status, i.held_reason, i.priority, i.due_at, a.name AS agent,
(SELECT b.name FROM sched_agent b WHERE b.id = i.target_agent_id) AS target_agent,
i.cancel_requested, i.reserved_at, i.started_at, i.finished_at, i.exit_code, i.signal, i.reason, i.message,
i.output, i.usage, i.progress"""

_INSTANCES = f"""
SELECT {INSTANCE_COLUMNS}
FROM sched_task_instance_all i LEFT JOIN sched_agent a ON a.id = i.agent_id
WHERE {{condition}} ORDER BY i.seq"""
# Instances have the time of their task, so their partition is known.
_OF_TASK = "task_id = %(id)s AND id BETWEEN %(first)s AND %(last)s"
_INSTANCES_OF_TASK = _INSTANCES.format(condition="i.task_id = %(id)s AND i.id BETWEEN %(first)s AND %(last)s")
_INSTANCE = _INSTANCES.format(condition="i.id = %(id)s")


async def lock_tasks(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, LockedTask]:
    """Lock tasks in the order of their ids, before any of their instances is touched."""
    first, last = range_of(ids)
    rows = await connection.execute(
        _LOCK_BY_ID, {"ids": Uuids(ids), "first": first, "last": last}, binary=True
    )
    return {row.id: LockedTask(**row.as_dict()) for row in rows}


async def lock_tasks_of(connection: Connection, instances: Sequence[UUID]) -> dict[UUID, LockedTask]:
    """Lock the tasks of these instances, in the order of their ids, before the instances are touched."""
    first, last = range_of(instances)
    rows = await connection.execute(
        _LOCK_OF_INSTANCES, {"ids": Uuids(instances), "first": first, "last": last}, binary=True
    )
    return {row.id: LockedTask(**row.as_dict()) for row in rows}


async def live_instances(
    connection: Connection,
    *,
    ids: Sequence[UUID] | None = None,
    tasks: Sequence[UUID] | None = None,
) -> dict[UUID, LiveInstance]:
    """Return what is in the queue of these instances, or of these tasks, without locking it."""
    by = "id" if ids is not None else "task_id"
    wanted = ids if ids is not None else tasks or ()
    rows = await connection.execute(_LIVE.format(by=by), {"ids": Uuids(wanted)}, binary=True)
    return {row.id: LiveInstance(**row.as_dict()) for row in rows}


async def task_detail(connection: Connection, id_: UUID) -> TaskDetail | None:
    row = (
        await connection.execute(f"SELECT {COLUMNS} {FROM} WHERE t.id = %(id)s", {"id": id_})
    ).one_or_none()
    if row is None:
        return None
    first, last = range_of([id_])
    instances = await connection.execute(_INSTANCES_OF_TASK, {"id": id_, "first": first, "last": last})
    attempts = [TaskInstance(**instance.as_dict()) for instance in instances]
    late = await late_reports_store.of_instances(connection, [one.id for one in attempts])
    return TaskDetail(**row.as_dict(), instances=attempts, late_results=late)


async def tasks_by_id(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Task]:
    first, last = range_of(ids)
    rows = await connection.execute(
        f"SELECT {COLUMNS} {FROM} WHERE t.id = ANY(%(ids)s::uuid[]) AND t.id BETWEEN %(first)s AND %(last)s",
        {"ids": list(ids), "first": first, "last": last},
    )
    return {row.id: Task(**row.as_dict()) for row in rows}


async def instance_by_id(connection: Connection, id_: UUID) -> tuple[TaskInstance, str] | None:
    """Return an instance, live or finished, and the name of its namespace."""
    row = (await connection.execute(_INSTANCE, {"id": id_})).one_or_none()
    if row is None:
        return None
    namespace = await connection.execute(
        "SELECT n.name FROM sched_task_instance_all i JOIN sched_namespace n ON n.id = i.namespace_id "
        "WHERE i.id = %(id)s",
        {"id": id_},
    )
    return TaskInstance(**row.as_dict()), namespace.scalar_one()


async def target_of(connection: Connection, task_id: UUID) -> UUID | None:
    """Return the agent the newest instance of a task was bound to."""
    first, last = range_of([task_id])
    row = await connection.execute(
        f"SELECT target_agent_id FROM sched_task_instance_all WHERE {_OF_TASK} ORDER BY seq DESC LIMIT 1",
        {"id": task_id, "first": first, "last": last},
    )
    target: UUID | None = row.scalar_one_or_none()
    return target


async def count_repetition(connection: Connection, id_: UUID) -> int:
    """Return the number of the repetition of a locked task that is about to be made."""
    row = await connection.execute(
        "UPDATE sched_task SET repetitions = repetitions + 1 WHERE id = %(id)s RETURNING repetitions",
        {"id": id_},
    )
    return int(row.scalar_one())


_COUNT_FIRST_REPETITIONS = """
UPDATE sched_task t SET repetitions = 1
WHERE t.id = ANY(%(ids)s::uuid[]) AND t.id BETWEEN %(first)s AND %(last)s AND t.repetitions = 0
  AND t.finished_at IS NOT NULL AND t.flow_run_id IS NULL
  AND NOT EXISTS (SELECT FROM sched_schedule s WHERE s.id = t.schedule_id AND s.kind = 'daemon')
RETURNING t.id"""


async def count_first_repetitions(connection: Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Count the first repetition of those of these locked tasks that may be repeated and were not yet."""
    first, last = range_of(ids)
    rows = await connection.execute(
        _COUNT_FIRST_REPETITIONS, {"ids": list(ids), "first": first, "last": last}
    )
    return set(rows.scalars())


_STORED_OUTCOMES = """
SELECT id, token FROM sched_task_instance_history
WHERE id = ANY(%(ids)s::uuid[]) AND id BETWEEN %(first)s AND %(last)s"""


async def stored_tokens(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, UUID | None]:
    """Return {finished instance: the token it was finished with}."""
    first, last = range_of(ids)
    rows = await connection.execute(_STORED_OUTCOMES, {"ids": Uuids(ids), "first": first, "last": last})
    return {row.id: row.token for row in rows}
