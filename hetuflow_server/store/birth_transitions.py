"""The verbs that bring tasks and instances into being; beside `transitions.py`, which see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import psycopg

from hetuflow_server.store.claim_transitions import RESERVATION, claimed, new_tokens
from hetuflow_server.store.columns import transpose
from hetuflow_server.store.connection import Connection
from hetuflow_server.store.records import Claimed, NewInstance, NewTask, Recipient
from hetuflow_server.store.work_leases import OF_NAMESPACE, lease_of_namespace

_TASKS = """
INSERT INTO sched_task (id, namespace_id, job_id, job_version, schedule_id, retry_of, status, params,
                        priority, fire_at, due_at, deadline_at, traceparent, created_by, backfill_id,
                        flow_run_id, flow_node, map_index, flow_context)
SELECT id, namespace_id, job_id, {job_version}, schedule_id, retry_of, 'pending', params, priority,
       fire_at, due_at, deadline_at, traceparent, created_by, backfill_id, flow_run_id, flow_node, map_index,
       flow_context::jsonb
FROM unnest(%(task.id)s::uuid[], %(task.namespace_id)s::integer[], %(task.job_id)s::uuid[],
            %(task.job_version)s::integer[], %(task.schedule_id)s::uuid[], %(task.retry_of)s::uuid[],
            %(task.params)s::jsonb[], %(task.priority)s::smallint[], %(task.fire_at)s::timestamptz[],
            %(task.due_at)s::timestamptz[], %(task.deadline_at)s::timestamptz[], %(task.traceparent)s::text[],
            %(task.created_by)s::text[], %(task.backfill_id)s::uuid[], %(task.flow_run_id)s::uuid[],
            %(task.flow_node)s::text[], %(task.map_index)s::integer[], %(task.flow_context)s::text[])
  AS n(id, namespace_id, job_id, job_version, schedule_id, retry_of, params, priority, fire_at, due_at,
       deadline_at, traceparent, created_by, backfill_id, flow_run_id, flow_node, map_index, flow_context)
ON CONFLICT (id) DO NOTHING RETURNING id, created_at"""
_NEW_TASKS = _TASKS.format(job_version="job_version")
# No task is without a version: if its job has changed, is disabled or gone, PostgreSQL refuses all of them.
_NEW_RUNS = _TASKS.format(
    job_version="""(SELECT j.version FROM sched_job j
        WHERE j.id = n.job_id AND j.version = n.job_version AND j.enabled AND j.deleted_at IS NULL)"""
)

# Read with the rows it is for, so that a change of it counts for all that are made afterwards.
_LEASE = f"""
CASE n.lease_ms WHEN {OF_NAMESPACE} THEN {lease_of_namespace("n.namespace_id")} ELSE n.lease_ms END"""

_NEW_INSTANCES = f"""
{{keys}}INSERT INTO sched_task_instance
  (id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id, seq, attempt, priority, fire_at,
   due_at, deadline_at, lease_ms, concurrency_key, target_agent_id, backfill_id, slot, flow_run_id,
   {{state}})
SELECT id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id, seq, attempt, priority,
       fire_at, due_at, deadline_at, {_LEASE},
       concurrency_key, target_agent_id, backfill_id, slot, flow_run_id,
       {{begins}}
FROM unnest(%(id)s::uuid[], %(task_id)s::uuid[], %(namespace_id)s::integer[], %(placement_id)s::bigint[],
            %(job_id)s::uuid[], %(job_version)s::integer[], %(schedule_id)s::uuid[], %(seq)s::integer[],
            %(attempt)s::integer[], %(priority)s::smallint[], %(fire_at)s::timestamptz[],
            %(due_at)s::timestamptz[], %(deadline_at)s::timestamptz[], %(lease_ms)s::integer[],
            %(concurrency_key)s::text[], %(target_agent_id)s::uuid[], %(backfill_id)s::uuid[],
            %(held_reason)s::text[], %(slot)s::integer[], %(flow_run_id)s::uuid[])
  AS n(id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id, seq, attempt, priority,
       fire_at, due_at, deadline_at, lease_ms, concurrency_key, target_agent_id, backfill_id, held_reason,
       slot, flow_run_id)
WHERE {{condition}}
ON CONFLICT (id) DO NOTHING"""


def _waiting(held: str) -> dict[str, str]:
    """How instances begin that have no owner yet; `held` tells why they cannot be claimed, if so."""
    return {
        "state": "status, held_reason",
        "begins": f"CASE WHEN {held} IS NULL THEN 'pending' ELSE 'held' END, {held}",
    }


# Locked, so that whoever gives a key back waits for this row to be there, and then releases it.
_FULL_KEYS = """
WITH full_key AS MATERIALIZED (
  SELECT l.namespace_id, l.scope
  FROM unnest(%(key_namespaces)s::integer[], %(keys)s::text[]) AS k(namespace_id, scope)
  JOIN sched_limit l USING (namespace_id, scope)
  WHERE l.in_use >= l.max ORDER BY l.namespace_id, l.scope FOR SHARE OF l)
"""
# What is due only later is held by the claim that meets it, if its key is taken then.
_HELD_BY_KEY = """coalesce(n.held_reason, CASE WHEN n.due_at <= clock_timestamp() + interval '1 second'
    AND EXISTS (SELECT FROM full_key f WHERE f.namespace_id = n.namespace_id AND f.scope = n.concurrency_key)
  THEN 'key' END)"""
_CREATE_UNKEYED = _NEW_INSTANCES.format(keys="", condition="true", **_waiting("n.held_reason"))
_CREATE_KEYED = _NEW_INSTANCES.format(keys=_FULL_KEYS, condition="true", **_waiting(_HELD_BY_KEY))
# Tasks and their first instances in one statement; a task that was there already gets none.
_OF_NEW_TASKS = "n.task_id IN (SELECT id FROM task)"
_FIRST_INSTANCES = _NEW_INSTANCES.format(keys="", condition=_OF_NEW_TASKS, **_waiting("n.held_reason"))
_CREATE = "WITH task AS ({tasks}), instance AS ({instances}) SELECT id, created_at FROM task"
_CREATE_TASKS = _CREATE.format(tasks=_NEW_TASKS, instances=_FIRST_INSTANCES)
_CREATE_RUNS = _CREATE.format(tasks=_NEW_RUNS, instances=_FIRST_INSTANCES)

# The same with an owner from the beginning.
_RESERVED_INSTANCES = _NEW_INSTANCES.format(
    keys="",
    condition=_OF_NEW_TASKS,
    state="status, token, claim_no, agent_id, session_id, request_id, reserved_at, reserved_until",
    begins="""'reserved', %(token)s::uuid, 1, %(agent_id)s::uuid, %(session_id)s::uuid, %(request_id)s::uuid,
       clock_timestamp(), greatest(clock_timestamp(), due_at) + %(reservation)s::interval""",
)
_CREATE_RESERVED = f"""
WITH task AS ({_NEW_RUNS}),
instance AS ({_RESERVED_INSTANCES} RETURNING task_id, lease_ms, reserved_at, reserved_until)
SELECT created_at, reserved_at, lease_ms, reserved_until FROM task JOIN instance ON task_id = id"""


class Born(NamedTuple):
    """A run whose first instance was somebody's from the beginning."""

    created_at: datetime
    reserved_at: datetime
    # What its owner is given.
    given: Claimed


class JobChanged(Exception):
    """The version of a run is not that of its job now, or the job may not be run."""


async def create(
    connection: Connection, tasks: Sequence[NewTask], instances: Sequence[NewInstance]
) -> dict[UUID, datetime]:
    """Insert tasks and their first instances; return those tasks that were not there already, and when."""
    if not any(instance.concurrency_key for instance in instances):
        return dict(await connection.exec_driver_sql(_CREATE_TASKS, _columns(tasks, instances)))
    new: dict[UUID, datetime] = dict(await connection.exec_driver_sql(_NEW_TASKS, _columns(tasks)))
    await create_instances(connection, [instance for instance in instances if instance.task_id in new])
    return new


async def create_runs(
    connection: Connection, tasks: Sequence[NewTask], instances: Sequence[NewInstance]
) -> dict[UUID, datetime]:
    """Insert tasks of the version a job has now, without keys, and commit; return when each was made.

    Raises JobChanged if it is not the version, or the job may not be run.
    """
    with _refusals():
        return dict(await connection.exec_driver_sql(_CREATE_RUNS, _columns(tasks, instances), last=True))


async def create_reserved(
    connection: Connection, task: NewTask, instance: NewInstance, recipient: Recipient
) -> Born:
    """Insert a run as `create_runs` does, whose first instance is somebody's from the beginning.

    It takes no limits.
    """
    token = new_tokens(1)[0]
    parameters = _columns([task], [instance])
    parameters |= {"token": token, "reservation": RESERVATION, **recipient._asdict()}
    with _refusals():
        made = (await connection.exec_driver_sql(_CREATE_RESERVED, parameters, last=True)).one()
    created_at, reserved_at, lease_ms, reserved_until = made
    params = msgspec.json.decode(task.params)
    given = claimed(instance, token, 1, reserved_until, lease_ms, params, task.traceparent, None, None)
    return Born(created_at, reserved_at, given)


def _columns(tasks: Sequence[NewTask], instances: Sequence[NewInstance] | None = None) -> dict[str, Any]:
    columns = {f"task.{name}": column for name, column in transpose(NewTask, tasks).items()}
    return columns if instances is None else columns | transpose(NewInstance, instances)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except psycopg.errors.NotNullViolation as error:
        if error.diag.column_name != "job_version":
            raise
        raise JobChanged from error


async def create_instances(connection: Connection, instances: Sequence[NewInstance]) -> None:
    """Insert instances; what is due and whose concurrency key is taken is held.

    Takes locks on limits: a transaction that also gives limits back does that first.
    """
    keys = sorted({(one.namespace_id, one.concurrency_key) for one in instances if one.concurrency_key})
    if keys:
        parameters = transpose(NewInstance, instances)
        parameters |= {"key_namespaces": [key[0] for key in keys], "keys": [key[1] for key in keys]}
        await connection.exec_driver_sql(_CREATE_KEYED, parameters)
    elif instances:
        await connection.exec_driver_sql(_CREATE_UNKEYED, transpose(NewInstance, instances))
