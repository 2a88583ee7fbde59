"""What was left behind: rows that refer to what is gone, counts of flows, work that nothing holds any more.

No foreign key points into a partitioned table, so the check is here. What expires with its partition is no
fault: only what is younger than a day must have what it refers to. And only what has been so for a minute is
looked at, because a running system is in the middle of something at any moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from hetuflow_core.limits import Scope
from hetuflow_server.postgres.connection import Connection

_SETTLED = "interval '1 minute'"
_LATELY = "interval '1 day'"

_WRONG_RUNS = """
SELECT r.id, r.namespace_id, r.nodes_open,
       count(n.node) FILTER (WHERE n.status IN ('waiting', 'running'))::integer AS counted
FROM sched_flow_run r LEFT JOIN sched_flow_node n ON n.flow_run_id = r.id
WHERE r.finished_at IS NULL AND (%(ids)s::uuid[] IS NULL OR r.id = ANY(%(ids)s))
GROUP BY r.id, r.namespace_id, r.nodes_open
HAVING r.nodes_open <> count(n.node) FILTER (WHERE n.status IN ('waiting', 'running'))
ORDER BY r.id LIMIT %(most)s"""

_LOCK_RUNS = "SELECT id FROM sched_flow_run WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR UPDATE"

_CORRECT_RUNS = """
UPDATE sched_flow_run r SET nodes_open = w.counted
FROM unnest(%(ids)s::uuid[], %(counts)s::integer[]) AS w(id, counted)
WHERE r.id = w.id AND r.finished_at IS NULL"""

_NODES_WITHOUT_RUN = """
SELECT DISTINCT n.flow_run_id FROM sched_flow_node n
WHERE NOT EXISTS (SELECT FROM sched_flow_run r WHERE r.id = n.flow_run_id)
ORDER BY n.flow_run_id LIMIT %(most)s"""

_DROP_NODES = """
DELETE FROM sched_flow_node n WHERE n.flow_run_id = ANY(%(ids)s::uuid[])
  AND NOT EXISTS (SELECT FROM sched_flow_run r WHERE r.id = n.flow_run_id)"""

# A flow's own instance runs as long as its run does; nobody else would end it.
_FLOWS_WITHOUT_RUN = f"""
SELECT i.id FROM sched_task_instance i
WHERE i.status = 'running' AND i.agent_id IS NULL AND i.started_at < clock_timestamp() - {_SETTLED}
  AND NOT EXISTS (SELECT FROM sched_flow_run r WHERE r.id = i.task_id AND r.finished_at IS NULL)
ORDER BY i.id LIMIT %(most)s"""

_KEYS_WITH_ROOM = f"""
SELECT DISTINCT i.namespace_id, i.concurrency_key FROM sched_task_instance i
LEFT JOIN sched_limit l ON l.namespace_id = i.namespace_id AND l.scope = i.concurrency_key
WHERE i.status = 'held' AND i.held_reason = 'key' AND i.due_at < clock_timestamp() - {_SETTLED}
  AND coalesce(l.in_use < l.max, true)
ORDER BY i.namespace_id, i.concurrency_key LIMIT %(most)s"""

_IDLE_SCHEDULES = f"""
SELECT DISTINCT w.schedule_id FROM sched_task_instance w
WHERE w.held_reason IN ('overlap', 'queue') AND w.due_at < clock_timestamp() - {_SETTLED}
  AND w.schedule_id IS NOT NULL AND NOT EXISTS (
    SELECT FROM sched_task_instance i
    WHERE i.schedule_id = w.schedule_id
      AND (i.held_reason IS NULL OR i.held_reason NOT IN ('overlap', 'queue')))
ORDER BY w.schedule_id LIMIT %(most)s"""

_EVENTS_UNMATCHED = f"""
SELECT t.event_id FROM sched_event_todo t
LEFT JOIN sched_event e ON e.id = t.event_id
WHERE e.id IS NULL OR e.created_at < clock_timestamp() - 5 * {_SETTLED}
ORDER BY t.event_id LIMIT %(most)s"""

_DROP_TODO = """
DELETE FROM sched_event_todo t WHERE t.event_id = ANY(%(ids)s::uuid[])
  AND NOT EXISTS (SELECT FROM sched_event e WHERE e.id = t.event_id)"""

_SECRETS_UNREADABLE = """
SELECT n.name || '/' || s.name AS secret FROM sched_secret s
JOIN sched_namespace n ON n.id = s.namespace_id
JOIN sched_secret_version v ON v.secret_id = s.id AND v.version = s.version
WHERE v.key_id <> ALL(%(known)s::text[]) ORDER BY n.name, s.name LIMIT %(most)s"""

_SECRETS_WITHOUT_VALUE = """
SELECT n.name || '/' || s.name AS secret FROM sched_secret s JOIN sched_namespace n ON n.id = s.namespace_id
WHERE NOT EXISTS (
  SELECT FROM sched_secret_version v WHERE v.secret_id = s.id AND v.version = s.version)
ORDER BY n.name, s.name LIMIT %(most)s"""

_LOGS_WITHOUT_INSTANCE = """
SELECT DISTINCT l.instance_id FROM sched_log_length l
WHERE l.instance_id >= %(since)s AND l.instance_id < %(until)s
  AND NOT EXISTS (SELECT FROM sched_task_instance i WHERE i.id = l.instance_id)
  AND NOT EXISTS (SELECT FROM sched_task_instance_history h WHERE h.id = l.instance_id)
ORDER BY l.instance_id LIMIT %(most)s"""

_DROP_LOGS = """
WITH chunks AS (DELETE FROM sched_log_chunk WHERE instance_id = ANY(%(ids)s::uuid[]))
DELETE FROM sched_log_length WHERE instance_id = ANY(%(ids)s::uuid[])"""

_DELIVERIES_WITHOUT_TASK = """
SELECT d.id FROM sched_webhook_delivery d
WHERE d.next_at IS NOT NULL AND NOT EXISTS (SELECT FROM sched_task t WHERE t.id = d.task_id)
ORDER BY d.id LIMIT %(most)s"""

_DROP_DELIVERIES = """
DELETE FROM sched_webhook_delivery d WHERE d.id = ANY(%(ids)s::uuid[])
  AND NOT EXISTS (SELECT FROM sched_task t WHERE t.id = d.task_id)"""

_RUNS_FORGOTTEN = f"""
SELECT k.namespace_id, k.scope, k.key FROM sched_idempotency_key k
WHERE k.created_at > clock_timestamp() - {_LATELY} AND k.response ? 'task_id'
  AND NOT EXISTS (SELECT FROM sched_task t WHERE t.id = (k.response->>'task_id')::uuid)
ORDER BY k.created_at LIMIT %(most)s"""

_DROP_KEYS = """
DELETE FROM sched_idempotency_key k
USING unnest(%(namespaces)s::integer[], %(scopes)s::text[], %(keys)s::text[]) AS w(namespace_id, scope, key)
WHERE k.namespace_id = w.namespace_id AND k.scope = w.scope AND k.key = w.key"""


@dataclass(frozen=True, slots=True)
class WrongRun:
    id: UUID
    namespace_id: int
    nodes_open: int
    counted: int


@dataclass(frozen=True, slots=True)
class ForgottenRun:
    namespace_id: int
    scope: str
    key: str


async def wrong_runs(connection: Connection, most: int, ids: Sequence[UUID] | None = None) -> list[WrongRun]:
    """Return runs that count other nodes than they have, all of them or those of these."""
    rows = await connection.execute(_WRONG_RUNS, {"ids": None if ids is None else list(ids), "most": most})
    return [WrongRun(**row.as_dict()) for row in rows]


async def lock_runs(connection: Connection, ids: Sequence[UUID]) -> None:
    await connection.execute(_LOCK_RUNS, {"ids": sorted(ids)})


async def correct_runs(connection: Connection, wrong: Sequence[WrongRun]) -> None:
    """Set what locked runs count to what there is."""
    await connection.execute(
        _CORRECT_RUNS, {"ids": [one.id for one in wrong], "counts": [one.counted for one in wrong]}
    )


async def nodes_without_run(connection: Connection, most: int) -> list[UUID]:
    return await _ids(connection, _NODES_WITHOUT_RUN, most)


async def drop_nodes(connection: Connection, runs: Sequence[UUID]) -> None:
    await connection.execute(_DROP_NODES, {"ids": list(runs)})


async def flows_without_run(connection: Connection, most: int) -> list[UUID]:
    return await _ids(connection, _FLOWS_WITHOUT_RUN, most)


async def keys_with_room(connection: Connection, most: int) -> list[Scope]:
    """Return keys that hold work although there is room."""
    rows = await connection.execute(_KEYS_WITH_ROOM, {"most": most})
    return [Scope(row.namespace_id, row.concurrency_key) for row in rows]


async def idle_schedules(connection: Connection, most: int) -> list[UUID]:
    """Return schedules whose fires wait for each other while none is under way."""
    return await _ids(connection, _IDLE_SCHEDULES, most)


async def events_unmatched(connection: Connection, most: int) -> list[UUID]:
    """Return events that wait to be matched for long, or are gone."""
    return await _ids(connection, _EVENTS_UNMATCHED, most)


async def drop_todo(connection: Connection, events: Sequence[UUID]) -> int:
    """Wait no longer for events that are gone; return how many those were."""
    return (await connection.execute(_DROP_TODO, {"ids": list(events)})).rowcount


async def secrets_unreadable(connection: Connection, known: Sequence[str], most: int) -> list[str]:
    """Return secrets whose value none of these keys opens."""
    rows = await connection.execute(_SECRETS_UNREADABLE, {"known": list(known), "most": most})
    return list(rows.scalars())


async def secrets_without_value(connection: Connection, most: int) -> list[str]:
    rows = await connection.execute(_SECRETS_WITHOUT_VALUE, {"most": most})
    return list(rows.scalars())


async def logs_without_instance(connection: Connection, since: UUID, until: UUID, most: int) -> list[UUID]:
    """Return instances between these ids that have a log and are nowhere else."""
    rows = await connection.execute(_LOGS_WITHOUT_INSTANCE, {"since": since, "until": until, "most": most})
    return list(rows.scalars())


async def drop_logs(connection: Connection, instances: Sequence[UUID]) -> None:
    await connection.execute(_DROP_LOGS, {"ids": list(instances)})


async def deliveries_without_task(connection: Connection, most: int) -> list[UUID]:
    return await _ids(connection, _DELIVERIES_WITHOUT_TASK, most)


async def drop_deliveries(connection: Connection, deliveries: Sequence[UUID]) -> None:
    await connection.execute(_DROP_DELIVERIES, {"ids": list(deliveries)})


async def runs_forgotten(connection: Connection, most: int) -> list[ForgottenRun]:
    """Return idempotency keys whose task is gone: asked again they would answer with nothing."""
    rows = await connection.execute(_RUNS_FORGOTTEN, {"most": most})
    return [ForgottenRun(**row.as_dict()) for row in rows]


async def drop_keys(connection: Connection, forgotten: Sequence[ForgottenRun]) -> None:
    await connection.execute(
        _DROP_KEYS,
        {
            "namespaces": [one.namespace_id for one in forgotten],
            "scopes": [one.scope for one in forgotten],
            "keys": [one.key for one in forgotten],
        },
    )


async def _ids(connection: Connection, statement: str, most: int) -> list[UUID]:
    return list((await connection.execute(statement, {"most": most})).scalars())
