"""Counts for people who look: what waits, what runs, what failed lately, what is late, what comes.

These statements run often, also on systems with millions of tasks. So each of them uses an index, starts from
the few backlog entries or from a namespace, and counts up to a cap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from hetuflow_core.resources.status import AgentCounts, FailingJob, LateTask, NextFire
from hetuflow_server.agents.store import REACHABLE
from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.sql_fragments import by_key

_CAP = 10_000
_MOST_LATE = 1_000
# What failed longer ago is not news, and not kept.
_NEWS = timedelta(days=1)
# So many tasks next to a failure, and of the newest, are looked at for a success.
_NEAR = 1_000

_NAMESPACES = """
SELECT id, name, clock_timestamp() AS now FROM sched_namespace
WHERE %(names)s::text[] IS NULL OR name = ANY(%(names)s) ORDER BY id"""

_PART = "(SELECT count(*) FROM (SELECT FROM sched_task_instance i WHERE {where} LIMIT %(cap)s) c)::integer"
_HELD = (
    "i.namespace_id = n.id AND i.held_reason = 'overlap'",
    "i.namespace_id = n.id AND i.held_reason = 'queue'",
    "i.namespace_id = n.id AND i.held_reason = 'flow'",
    "i.namespace_id = n.id AND i.status = 'held' AND i.held_reason = 'key'",
)
_PENDING = "i.namespace_id = n.id AND i.waits AND i.target_agent_id IS NULL"
_COUNTS = f"""
SELECT n.id, {" + ".join(_PART.format(where=where) for where in _HELD)} AS held,
       {_PART.format(where=_PENDING)} AS pending, claimed.reserved, claimed.running
FROM unnest(%(namespaces)s::integer[]) AS n(id) CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE status = 'reserved')::integer AS reserved,
         count(*) FILTER (WHERE status = 'running')::integer AS running
  FROM (SELECT status FROM sched_task_instance i
        WHERE i.namespace_id = n.id AND i.claimed LIMIT %(cap)s) c) claimed"""

# What is bound to an agent is not in the index of its namespace; there is little of it.
_BOUND = """
SELECT namespace_id, count(*)::integer AS pending FROM (
  SELECT namespace_id FROM sched_task_instance
  WHERE waits AND target_agent_id IS NOT NULL LIMIT %(cap)s) c
GROUP BY namespace_id"""

_OF_HEADS = """
FROM unnest(%(namespaces)s::integer[], %(placements)s::bigint[], %(priorities)s::smallint[],
            %(targets)s::uuid[]) AS h(namespace_id, placement_id, priority, target_agent_id)
CROSS JOIN LATERAL (
  SELECT {columns} FROM sched_task_instance i
  WHERE i.waits AND {target} AND i.namespace_id = h.namespace_id
    AND i.placement_id = h.placement_id AND i.priority = h.priority AND {due}
  ORDER BY i.due_at, i.id LIMIT %(most)s) i"""
_LATE_DUE = "i.due_at < %(before)s"
_TARGETS = ("i.target_agent_id IS NULL", "i.target_agent_id = h.target_agent_id")

_OLDEST = "SELECT h.namespace_id, min(i.due_at) AS due_at" + _OF_HEADS + " GROUP BY h.namespace_id"
_COUNT_LATE = "SELECT h.namespace_id, count(*)::integer AS late" + _OF_HEADS + " GROUP BY h.namespace_id"
_LATE = (
    "SELECT h.namespace_id, j.name AS job, i.task_id, i.due_at, "
    "extract(epoch FROM clock_timestamp() - i.due_at)::float AS seconds"
    + _OF_HEADS
    + " JOIN sched_job j ON j.id = i.job_id ORDER BY i.due_at, i.task_id LIMIT %(most)s"
)
_MADE = (
    "SELECT h.namespace_id, j.name AS job, s.name AS schedule, s.id AS schedule_id, i.due_at AS at, i.task_id"
    + _OF_HEADS
    + " JOIN sched_schedule s ON s.id = i.schedule_id JOIN sched_job j ON j.id = i.job_id "
    "ORDER BY i.due_at LIMIT %(most)s"
)

_MADE_HELD = """
SELECT n.id AS namespace_id, j.name AS job, s.name AS schedule, s.id AS schedule_id, i.due_at AS at, i.task_id
FROM unnest(%(namespaces)s::integer[]) AS n(id) CROSS JOIN LATERAL (
  SELECT job_id, schedule_id, task_id, due_at FROM sched_task_instance
  WHERE namespace_id = n.id AND held_reason = 'overlap' AND due_at > clock_timestamp()
  ORDER BY due_at, id LIMIT %(most)s) i
JOIN sched_schedule s ON s.id = i.schedule_id JOIN sched_job j ON j.id = i.job_id
ORDER BY i.due_at LIMIT %(most)s"""

_ENABLED = "s.enabled AND s.next_fire_at IS NOT NULL AND s.deleted_at IS NULL AND j.enabled"
_TO_COME = f"""
SELECT s.namespace_id, j.name AS job, s.name AS schedule, s.id AS schedule_id, s.next_fire_at AS at,
       NULL::uuid AS task_id
FROM sched_schedule s JOIN sched_job j ON j.id = s.job_id
WHERE {_ENABLED} AND s.namespace_id = ANY(%(namespaces)s::integer[])
ORDER BY s.next_fire_at, s.id LIMIT %(most)s"""

_BEHIND = f"""
SELECT count(*)::integer FROM (
  SELECT FROM sched_schedule s JOIN sched_job j ON j.id = s.job_id
  WHERE {_ENABLED} AND s.next_fire_at < %(before)s AND s.namespace_id = ANY(%(namespaces)s::integer[])
  LIMIT %(most)s) c"""

# A pair and not an equality, which would be dropped from the order: then failures of all would do as well.
_FAILURES = """
    SELECT task_id FROM sched_task_failure
    WHERE (namespace_id, failed_at) > (n.id, %(since)s) AND (namespace_id, failed_at) <= (n.id, 'infinity')
    ORDER BY namespace_id DESC, failed_at DESC LIMIT {most}"""
_FAILED = f"""
SELECT coalesce(sum(f.failed), 0)::integer
FROM unnest(%(namespaces)s::integer[]) AS n(id) CROSS JOIN LATERAL (
  SELECT count(*) AS failed FROM ({_FAILURES.format(most="%(cap)s")}) c) f"""

# Whatever has succeeded since came soon after the failure, or is the newest: what waits in between, which may
# be much, has not ended.
_SUCCESS = """
  SELECT FROM (SELECT t.status FROM sched_task t WHERE t.job_id = f.job_id AND t.id > f.id
               ORDER BY {order} LIMIT %(near)s) since
  WHERE since.status = 'succeeded'"""

# Of the newest failures, those whose job has ended nothing well since.
_FAILING = f"""
SELECT f.namespace_id, j.name AS job, f.job_id, f.id AS task_id, f.finished_at AS failed_at, f.exit_code,
       f.reason
FROM (
  SELECT DISTINCT ON (t.job_id) t.namespace_id, t.job_id, t.id, t.finished_at, t.exit_code, t.reason
  FROM unnest(%(namespaces)s::integer[]) AS n(id)
  CROSS JOIN LATERAL ({_FAILURES.format(most="%(looked)s")}) newest
  JOIN sched_task t ON {by_key("t.id", "newest.task_id")}
  ORDER BY t.job_id, t.finished_at DESC) f
JOIN sched_job j ON j.id = f.job_id
WHERE j.deleted_at IS NULL AND NOT EXISTS ({_SUCCESS.format(order="t.id")})
  AND NOT EXISTS ({_SUCCESS.format(order="t.id DESC")})
ORDER BY f.finished_at DESC, f.id LIMIT %(most)s"""

_AGENTS = f"""
SELECT count(*)::integer AS total,
       count(*) FILTER (WHERE a.status = 'online' AND a.there)::integer AS online,
       count(*) FILTER (WHERE a.status = 'online' AND NOT a.there)::integer AS unreachable,
       count(*) FILTER (WHERE a.status = 'draining')::integer AS draining,
       count(*) FILTER (WHERE a.status = 'pending')::integer AS pending,
       count(*) FILTER (WHERE a.status = 'offline')::integer AS offline,
       coalesce(sum(a.slots) FILTER (WHERE a.status = 'online' AND a.there), 0)::integer AS slots,
       coalesce(sum(greatest(0, a.slots - coalesce(held.count, 0)))
                FILTER (WHERE a.status = 'online' AND a.there), 0)::integer AS free_slots
FROM (SELECT a.id, a.status, a.slots, a.session_id IS NOT NULL AND {REACHABLE} AS there FROM sched_agent a
      WHERE %(names)s::text[] IS NULL OR a.capabilities->'namespaces' ?| %(names)s) a
LEFT JOIN (SELECT agent_id, count(*) AS count FROM sched_task_instance
           WHERE agent_id IS NOT NULL GROUP BY agent_id) held ON held.agent_id = a.id"""


@dataclass(frozen=True, slots=True)
class Counts:
    held: int
    pending: int
    reserved: int
    running: int

    @property
    def capped(self) -> bool:
        return max(self.held, self.pending, self.reserved + self.running) >= _CAP


@dataclass(frozen=True, slots=True)
class Reach:
    """The namespaces that are looked at, {id: name}, and when."""

    names: Mapping[int, str]
    now: datetime

    @property
    def parameters(self) -> dict[str, Any]:
        return {"namespaces": list(self.names)}


async def reach(connection: Connection, names: Sequence[str] | None) -> Reach | None:
    """Return the namespaces of these names, or all; None if there are none."""
    rows = list(await connection.execute(_NAMESPACES, {"names": names}))
    return Reach({row.id: row.name for row in rows}, rows[0].now) if rows else None


async def counts(connection: Connection, here: Reach) -> dict[int, Counts]:
    """Return what is in the queue of each namespace, each up to a cap."""
    rows = await connection.execute(_COUNTS, {**here.parameters, "cap": _CAP})
    found = {row.id: Counts(row.held, row.pending, row.reserved, row.running) for row in rows}
    for row in await connection.execute(_BOUND, {"cap": _CAP}):
        if (known := found.get(row.namespace_id)) is not None:
            found[row.namespace_id] = replace(known, pending=known.pending + row.pending)
    return found


async def oldest_due(
    connection: Connection, entries: Sequence[BacklogEntry], now: datetime
) -> dict[int, datetime]:
    """Return {namespace: when the first of what waits there became due}."""
    rows = await _of_entries(
        connection, _OLDEST, entries, columns="i.due_at", due="i.due_at <= %(before)s", before=now, most=1
    )
    found: dict[int, datetime] = {}
    for row in rows:
        found[row.namespace_id] = min(row.due_at, found.get(row.namespace_id, row.due_at))
    return found


async def count_late(
    connection: Connection, entries: Sequence[BacklogEntry], before: datetime
) -> dict[int, int]:
    """Return {namespace: how many have been due since before then}."""
    rows = await _of_entries(
        connection, _COUNT_LATE, entries, columns="i.due_at", due=_LATE_DUE, before=before, most=_MOST_LATE
    )
    found: dict[int, int] = {}
    for row in rows:
        found[row.namespace_id] = found.get(row.namespace_id, 0) + row.late
    return found


async def late(
    connection: Connection, here: Reach, entries: Sequence[BacklogEntry], before: datetime, most: int
) -> list[LateTask]:
    """Return what has been due for longest and is not claimed."""
    columns = "i.task_id, i.job_id, i.due_at"
    rows = await _of_entries(
        connection, _LATE, entries, columns=columns, due=_LATE_DUE, before=before, most=most
    )
    ordered = sorted(rows, key=lambda row: row.due_at)[:most]
    return [
        LateTask(here.names[row.namespace_id], row.job, row.task_id, row.due_at, row.seconds)
        for row in ordered
    ]


async def coming(
    connection: Connection, here: Reach, entries: Sequence[BacklogEntry], most: int
) -> list[NextFire]:
    """Return the next fires: those whose task is made already, then what schedules come to."""
    columns = "i.task_id, i.job_id, i.schedule_id, i.due_at"
    limited = {**here.parameters, "most": most}
    rows = [
        *await _of_entries(
            connection,
            _MADE,
            entries,
            columns=columns,
            due="i.due_at > %(before)s",
            before=here.now,
            most=most,
        ),
        *await connection.execute(_MADE_HELD, limited),
        *await connection.execute(_TO_COME, limited),
    ]
    ordered = sorted(rows, key=lambda row: (row.at, row.schedule_id))[:most]
    return [
        NextFire(here.names[row.namespace_id], row.job, row.schedule, row.schedule_id, row.at, row.task_id)
        for row in ordered
    ]


async def count_behind(connection: Connection, here: Reach, before: datetime) -> int:
    """Return how many schedules should have fired before then, up to a cap."""
    row = await connection.execute(_BEHIND, {**here.parameters, "before": before, "most": _MOST_LATE})
    return int(row.scalar_one())


async def failed_last_hour(connection: Connection, here: Reach) -> int:
    row = await connection.execute(
        _FAILED, {**here.parameters, "since": here.now - timedelta(hours=1), "cap": _CAP}
    )
    return int(row.scalar_one())


async def failing(connection: Connection, here: Reach, most: int) -> list[FailingJob]:
    """Return jobs that failed within a day and have succeeded in nothing since, the newest failure first."""
    rows = await connection.execute(
        _FAILING,
        {**here.parameters, "since": here.now - _NEWS, "looked": 20 * most, "most": most, "near": _NEAR},
    )
    return [
        FailingJob(
            here.names[row.namespace_id],
            row.job,
            row.job_id,
            row.task_id,
            row.failed_at,
            row.exit_code,
            row.reason,
        )
        for row in rows
    ]


async def agent_counts(connection: Connection, names: Sequence[str] | None) -> AgentCounts:
    row = (await connection.execute(_AGENTS, {"names": names})).one()
    return AgentCounts(**row.as_dict())


async def _of_entries(
    connection: Connection,
    statement: str,
    entries: Sequence[BacklogEntry],
    *,
    columns: str,
    due: str,
    before: datetime,
    most: int,
) -> list[Any]:
    """Query the entries that are bound to an agent and the others apart: each kind has its own index."""
    found: list[Any] = []
    for target, bound in zip(_TARGETS, (False, True), strict=True):
        among = [entry for entry in entries if (entry.target is not None) is bound]
        if among:
            found += await connection.execute(
                statement.format(columns=columns, target=target, due=due),
                {
                    "namespaces": [entry.namespace_id for entry in among],
                    "placements": [entry.placement_id for entry in among],
                    "priorities": [entry.priority for entry in among],
                    "targets": [entry.target for entry in among],
                    "before": before,
                    "most": most,
                },
            )
    return found
