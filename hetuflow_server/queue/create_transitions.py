"""The verbs that bring tasks and instances into being; beside `transitions.py`, which see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import psycopg

from hetuflow_server.jobs.leases_store import OF_NAMESPACE, lease_of_namespace
from hetuflow_server.postgres.batches import scalars, transpose
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.queue.claim_transitions import RESERVATION, claimed, new_tokens
from hetuflow_server.queue.rows import Claimed, NewInstance, NewTask, Recipient

# What `n` is in the statements below: the columns of a batch, or of one row, which costs PostgreSQL far less
# than twenty arrays with one element each.
_TASK_TYPES = {
    **dict.fromkeys(("id", "job_id", "schedule_id", "retry_of", "backfill_id", "flow_run_id"), "uuid"),
    **dict.fromkeys(("namespace_id", "job_version", "map_index"), "integer"),
    **dict.fromkeys(("fire_at", "due_at", "deadline_at"), "timestamptz"),
    **dict.fromkeys(("traceparent", "created_by", "flow_node", "flow_context"), "text"),
    "params": "jsonb",
    "priority": "smallint",
}
_INSTANCE_TYPES = {
    **dict.fromkeys(("id", "task_id", "job_id", "schedule_id", "target_agent_id"), "uuid"),
    **dict.fromkeys(("backfill_id", "flow_run_id"), "uuid"),
    **dict.fromkeys(("namespace_id", "job_version", "seq", "attempt", "lease_ms", "slot"), "integer"),
    **dict.fromkeys(("fire_at", "due_at", "deadline_at"), "timestamptz"),
    **dict.fromkeys(("concurrency_key", "held_reason"), "text"),
    "placement_id": "bigint",
    "priority": "smallint",
}
_OF_TASK = "task."


def _batch(types: Mapping[str, str], prefix: str = "") -> str:
    columns = ", ".join(f"%({prefix}{name})s::{type_}[]" for name, type_ in types.items())
    return f"unnest({columns}) AS n({', '.join(types)})"


def _row(types: Mapping[str, str], prefix: str = "") -> str:
    columns = ", ".join(f"%({prefix}{name})s::{type_}" for name, type_ in types.items())
    return f"(SELECT {columns}) AS n({', '.join(types)})"


_TASKS = """
INSERT INTO sched_task (id, namespace_id, job_id, job_version, schedule_id, retry_of, status, params,
                        priority, fire_at, due_at, deadline_at, traceparent, created_by, backfill_id,
                        flow_run_id, flow_node, map_index, flow_context)
SELECT id, namespace_id, job_id, {job_version}, schedule_id, retry_of, 'pending', params, priority,
       fire_at, due_at, deadline_at, traceparent, created_by, backfill_id, flow_run_id, flow_node, map_index,
       flow_context::jsonb
FROM {rows}
ON CONFLICT (id) DO NOTHING RETURNING id, created_at"""
_NEW_TASKS = _TASKS.format(job_version="job_version", rows=_batch(_TASK_TYPES, _OF_TASK))
# No task is without a version: if its job has changed, is disabled or gone, PostgreSQL refuses all of them.
_RUNS_OF_NOW = """(SELECT j.version FROM sched_job j
        WHERE j.id = n.job_id AND j.version = n.job_version AND j.enabled AND j.deleted_at IS NULL)"""
_NEW_RUNS = _TASKS.format(job_version=_RUNS_OF_NOW, rows=_batch(_TASK_TYPES, _OF_TASK))
_NEW_RUN = _TASKS.format(job_version=_RUNS_OF_NOW, rows=_row(_TASK_TYPES, _OF_TASK))

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
FROM {{rows}}
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
_ANY = {"condition": "true", "rows": _batch(_INSTANCE_TYPES)}
_CREATE_UNKEYED = _NEW_INSTANCES.format(keys="", **_ANY, **_waiting("n.held_reason"))
_CREATE_KEYED = _NEW_INSTANCES.format(keys=_FULL_KEYS, **_ANY, **_waiting(_HELD_BY_KEY))
# Tasks and their first instances in one statement; a task that was there already gets none.
_FIRST = {"keys": "", "condition": "n.task_id IN (SELECT id FROM task)"}
_FIRST_INSTANCES = _NEW_INSTANCES.format(**_FIRST, rows=_batch(_INSTANCE_TYPES), **_waiting("n.held_reason"))
_FIRST_INSTANCE = _NEW_INSTANCES.format(**_FIRST, rows=_row(_INSTANCE_TYPES), **_waiting("n.held_reason"))
_CREATE = "WITH task AS ({tasks}), instance AS ({instances}) SELECT id, created_at FROM task"
_CREATE_TASKS = _CREATE.format(tasks=_NEW_TASKS, instances=_FIRST_INSTANCES)
_CREATE_RUNS = _CREATE.format(tasks=_NEW_RUNS, instances=_FIRST_INSTANCES)
_CREATE_RUN = _CREATE.format(tasks=_NEW_RUN, instances=_FIRST_INSTANCE)

# The same with an owner from the beginning.
_RESERVED_INSTANCE = _NEW_INSTANCES.format(
    **_FIRST,
    rows=_row(_INSTANCE_TYPES),
    state="status, token, claim_no, agent_id, session_id, request_id, reserved_at, reserved_until",
    begins="""'reserved', %(token)s::uuid, 1, %(agent_id)s::uuid, %(session_id)s::uuid, %(request_id)s::uuid,
       clock_timestamp(), greatest(clock_timestamp(), due_at) + %(reservation)s::interval""",
)
_CREATE_RESERVED = f"""
WITH task AS ({_NEW_RUN}),
instance AS ({_RESERVED_INSTANCE} RETURNING task_id, lease_ms, reserved_at, reserved_until)
SELECT created_at, reserved_at, lease_ms, reserved_until FROM task JOIN instance ON task_id = id"""


class CreatedReserved(NamedTuple):
    """A new task whose first instance was created reserved."""

    created_at: datetime
    reserved_at: datetime
    claimed: Claimed


class JobChanged(Exception):
    """The version of a run is not that of its job now, or the job may not be run."""


async def create(
    connection: Connection, tasks: Sequence[NewTask], instances: Sequence[NewInstance]
) -> dict[UUID, datetime]:
    """Insert tasks and their first instances; return those tasks that were not there already, and when."""
    if not any(instance.concurrency_key for instance in instances):
        return dict(await connection.execute(_CREATE_TASKS, _columns(tasks, instances)))
    new: dict[UUID, datetime] = dict(await connection.execute(_NEW_TASKS, _columns(tasks)))
    await create_instances(connection, [instance for instance in instances if instance.task_id in new])
    return new


async def create_runs(
    connection: Connection, tasks: Sequence[NewTask], instances: Sequence[NewInstance]
) -> dict[UUID, datetime]:
    """Insert tasks of the version a job has now, without keys, and commit; return when each was made.

    Raises JobChanged if it is not the version, or the job may not be run.
    """
    alone = len(tasks) == len(instances) == 1
    statement = _CREATE_RUN if alone else _CREATE_RUNS
    parameters = _scalars(tasks[0], instances[0]) if alone else _columns(tasks, instances)
    with _refusals():
        return dict(await connection.execute(statement, parameters, last=True))


async def create_reserved(
    connection: Connection, task: NewTask, instance: NewInstance, recipient: Recipient
) -> CreatedReserved:
    """Insert a task as `create_runs` does, with its first instance reserved; it takes no limits."""
    token = new_tokens(1)[0]
    parameters = _scalars(task, instance)
    parameters |= {"token": token, "reservation": RESERVATION, **recipient._asdict()}
    with _refusals():
        made = (await connection.execute(_CREATE_RESERVED, parameters, last=True)).one()
    created_at, reserved_at, lease_ms, reserved_until = made
    params = msgspec.json.decode(task.params)
    claim = claimed(instance, token, 1, reserved_until, lease_ms, params, task.traceparent, None, None)
    return CreatedReserved(created_at, reserved_at, claim)


def _columns(tasks: Sequence[NewTask], instances: Sequence[NewInstance] | None = None) -> dict[str, Any]:
    columns = {f"{_OF_TASK}{name}": column for name, column in transpose(NewTask, tasks).items()}
    return columns if instances is None else columns | transpose(NewInstance, instances)


def _scalars(task: NewTask, instance: NewInstance) -> dict[str, Any]:
    return scalars(NewTask, task, _OF_TASK) | scalars(NewInstance, instance)


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
        await connection.execute(_CREATE_KEYED, parameters)
    elif instances:
        await connection.execute(_CREATE_UNKEYED, transpose(NewInstance, instances))
