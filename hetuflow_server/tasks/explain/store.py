"""Reading what `explain` tells of: the task with what it waits for, the agents, the place in the queue.

Everything is read without locks, and whatever there may be much of is counted up to a cap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.explanation import LimitUse
from hetuflow_core.limits import Scope
from hetuflow_core.placement import AgentState, RunningJob
from hetuflow_core.resources.explanations import AttemptEnd, QueuePlace
from hetuflow_server.agents.store import REACHABLE, AgentCapabilities, AgentSession
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.queue.tasks_store import _SHOWN_REASON as SHOWN_REASON, _SHOWN_STATUS as SHOWN_STATUS

_MOST_HOLDERS = 5
_MOST_AHEAD = 1_000

_SUBJECT = f"""
SELECT t.id, t.namespace_id, n.name AS namespace, j.name AS job, t.job_id, t.job_version,
       {SHOWN_STATUS} AS status, {SHOWN_REASON} AS reason, t.due_at, t.deadline_at, t.attempts, t.losses,
       t.finished_at, t.flow_node, t.flow_context IS NOT NULL AS own_work, s.name AS schedule,
       s.spec->>'overlap' AS overlap, clock_timestamp() AS now,
       i.id AS instance_id, i.status AS instance_status, i.held_reason, i.priority, i.placement_id,
       i.schedule_id, i.concurrency_key, i.target_agent_id, b.name AS target, a.name AS agent, i.reserved_at,
       i.reserved_until, i.started_at, i.lease_until, i.cancel_requested, i.progress, i.slot,
       a.last_seen_at AS agent_last_seen_at, {REACHABLE} AS agent_reachable
FROM sched_task t JOIN sched_namespace n ON n.id = t.namespace_id JOIN sched_job j ON j.id = t.job_id
LEFT JOIN sched_schedule s ON s.id = t.schedule_id
LEFT JOIN sched_task_instance i ON i.task_id = t.id
LEFT JOIN sched_agent a ON a.id = i.agent_id
LEFT JOIN sched_agent b ON b.id = i.target_agent_id
WHERE t.id = %(id)s"""

_LAST_END = """
SELECT i.id AS instance_id, i.attempt, i.status, a.name AS agent, i.started_at, i.finished_at, i.exit_code,
       i.signal, i.reason, i.message, i.claim_no, i.cancel_requested
FROM sched_task_instance_history i LEFT JOIN sched_agent a ON a.id = i.agent_id
WHERE i.task_id = %(id)s ORDER BY i.seq DESC LIMIT 1"""

_USES = """
SELECT l.namespace_id, l.scope, l.max, l.in_use FROM sched_limit l
WHERE l.namespace_id = %(namespace_id)s AND l.scope = ANY(%(scopes)s::text[]) ORDER BY l.scope"""

_HOLDERS = """
SELECT i.task_id FROM sched_task_instance i JOIN sched_placement p ON p.id = i.placement_id
WHERE i.namespace_id = %(namespace_id)s AND i.claimed
  AND (i.concurrency_key = %(scope)s OR p.limit_scopes @> ARRAY[%(scope)s::text])
ORDER BY i.id LIMIT %(most)s"""

_AGENTS = f"""
SELECT a.id, a.name, a.status, a.slots, a.labels, a.capabilities, a.registered_at,
       a.session_id IS NOT NULL AS connected, {REACHABLE} AS reachable,
       t.id IS NULL OR (t.revoked_at IS NULL AND coalesce(t.expires_at > clock_timestamp(), true)) AS admitted
FROM sched_agent a LEFT JOIN sched_agent_token t ON t.id = a.token_id
WHERE a.capabilities->'namespaces' ? %(namespace)s AND a.name > %(after)s
ORDER BY a.name LIMIT %(most)s"""

_HELD = """
SELECT agent_id, placement_id, count(*)::integer AS rows FROM sched_task_instance
WHERE agent_id = ANY(%(agents)s::uuid[]) GROUP BY agent_id, placement_id"""

_NEIGHBOURS = """
SELECT DISTINCT i.agent_id, j.name AS job, v.spec->'labels' AS labels
FROM sched_task_instance i JOIN sched_job j ON j.id = i.job_id
JOIN sched_job_version v ON v.job_id = i.job_id AND v.version = i.job_version
WHERE i.agent_id = ANY(%(agents)s::uuid[]) AND i.namespace_id = %(namespace_id)s"""

# The heads of one namespace by a loose index scan, then what is due in each, up to the cap.
_PLACE = """
WITH RECURSIVE head AS (
  (SELECT placement_id, priority FROM sched_task_instance
   WHERE waits AND target_agent_id IS NULL AND namespace_id = %(namespace_id)s
   ORDER BY placement_id, priority LIMIT 1)
  UNION ALL
  SELECT next.* FROM head h CROSS JOIN LATERAL (
    SELECT placement_id, priority FROM sched_task_instance
    WHERE waits AND target_agent_id IS NULL AND namespace_id = %(namespace_id)s
      AND (placement_id, priority) > (h.placement_id, h.priority)
    ORDER BY placement_id, priority LIMIT 1) next)
SELECT (SELECT count(*)::integer FROM (
          SELECT FROM head h CROSS JOIN LATERAL (
            SELECT FROM sched_task_instance
            WHERE waits AND target_agent_id IS NULL AND namespace_id = %(namespace_id)s
              AND placement_id = h.placement_id AND priority = h.priority AND due_at <= clock_timestamp()
            LIMIT %(most)s) due
          WHERE h.priority > %(priority)s LIMIT %(most)s) counted) AS higher,
       (SELECT count(*)::integer FROM (
          SELECT FROM sched_task_instance
          WHERE waits AND target_agent_id IS NULL AND namespace_id = %(namespace_id)s
            AND placement_id = %(placement_id)s AND priority = %(priority)s
            AND (due_at, id) < (%(due_at)s, %(id)s)
          LIMIT %(most)s) counted) AS earlier"""

_HELD_BEFORE = """
SELECT count(*)::integer FROM (
  SELECT FROM sched_task_instance
  WHERE namespace_id = %(namespace_id)s AND concurrency_key = %(key)s AND status = 'held'
    AND held_reason = 'key' AND (-priority, due_at, id) < (-%(priority)s::integer, %(due_at)s, %(id)s)
  LIMIT %(most)s) counted"""

_QUEUED_BEFORE = """
SELECT count(*)::integer FROM (
  SELECT FROM sched_task_instance
  WHERE schedule_id = %(schedule_id)s AND held_reason IN ('overlap', 'queue')
    AND (due_at, id) < (%(due_at)s, %(id)s)
  LIMIT %(most)s) counted"""

_OPEN_NODES = """
SELECT node, reason, message, wake_at, event_name, started, succeeded + failed + skipped AS ended, total
FROM sched_flow_node WHERE flow_run_id = %(run)s AND status = 'running' ORDER BY node LIMIT %(most)s"""

_ELSEWHERE = "SELECT count(*) FROM sched_agent WHERE NOT capabilities->'namespaces' ? %(namespace)s"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A task with what is in the queue of it, if anything is."""

    id: UUID
    namespace_id: int
    namespace: str
    job: str
    job_id: UUID
    job_version: int
    status: str
    reason: str | None
    due_at: datetime
    deadline_at: datetime | None
    attempts: int
    losses: int
    finished_at: datetime | None
    flow_node: str | None
    own_work: bool
    schedule: str | None
    overlap: str | None
    # By the database's clock.
    now: datetime
    instance_id: UUID | None
    instance_status: str | None
    held_reason: str | None
    priority: int | None
    placement_id: int | None
    schedule_id: UUID | None
    concurrency_key: str | None
    target_agent_id: UUID | None
    target: str | None
    agent: str | None
    reserved_at: datetime | None
    reserved_until: datetime | None
    started_at: datetime | None
    lease_until: datetime | None
    cancel_requested: bool | None
    progress: dict[str, Any] | None
    slot: int | None
    agent_last_seen_at: datetime | None
    agent_reachable: bool

    @property
    def work(self) -> str | None:
        """The node of a flow whose own work it is."""
        return self.flow_node if self.own_work else None


@dataclass(frozen=True, slots=True)
class LastEnd:
    shown: AttemptEnd
    claim_no: int
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class OpenNode:
    node: str
    reason: str | None
    message: str | None
    wake_at: datetime | None
    event_name: str | None
    started: int
    ended: int
    total: int


@dataclass(frozen=True, slots=True)
class AgentThere:
    session: AgentSession
    connected: bool
    reachable: bool
    admitted: bool

    def standing(self, free_slots: int, **room: Any) -> AgentState:
        return AgentState(
            self.session.status, self.connected, self.reachable, self.admitted, free_slots, **room
        )


async def subject(connection: Connection, task_id: UUID) -> Subject | None:
    row = (await connection.execute(_SUBJECT, {"id": task_id})).one_or_none()
    return None if row is None else Subject(**row.as_dict())


async def last_end(connection: Connection, task_id: UUID) -> LastEnd | None:
    """Return how the newest instance that ended did so."""
    row = (await connection.execute(_LAST_END, {"id": task_id})).one_or_none()
    if row is None:
        return None
    fields = row.as_dict()
    claim_no, cancelled = fields.pop("claim_no"), fields.pop("cancel_requested")
    return LastEnd(AttemptEnd(**fields), claim_no, cancelled)


async def limit_uses(connection: Connection, namespace_id: int, scopes: Sequence[str]) -> list[LimitUse]:
    """Return those of these limits there are; what has no row is not limited."""
    rows = await connection.execute(_USES, {"namespace_id": namespace_id, "scopes": list(scopes)})
    return [LimitUse(Scope(row.namespace_id, row.scope), row.max, row.in_use) for row in rows]


async def holders(connection: Connection, scope: Scope) -> tuple[UUID, ...]:
    """Return some of the tasks that count against a limit now."""
    rows = await connection.execute(
        _HOLDERS, {"namespace_id": scope.namespace_id, "scope": scope.name, "most": _MOST_HOLDERS}
    )
    return tuple(rows.scalars())


async def agents(connection: Connection, namespace: str, after: str, most: int) -> list[AgentThere]:
    """Return agents that serve a namespace, whatever their state, by name from behind `after`."""
    rows = await connection.execute(_AGENTS, {"namespace": namespace, "after": after, "most": most})
    return [
        AgentThere(
            AgentSession(
                row.id,
                row.name,
                row.status,
                row.slots,
                row.labels,
                msgspec.convert(row.capabilities, AgentCapabilities),
                row.registered_at,
            ),
            row.connected,
            row.reachable,
            row.admitted,
        )
        for row in rows
    ]


async def count_elsewhere(connection: Connection, namespace: str) -> int:
    """Return how many agents do not serve a namespace."""
    return int((await connection.execute(_ELSEWHERE, {"namespace": namespace})).scalar_one())


async def held_by(connection: Connection, agent_ids: Sequence[UUID]) -> dict[UUID, dict[int, int]]:
    """Return {agent: {class: how many instances of it the agent has}}."""
    rows = await connection.execute(_HELD, {"agents": list(agent_ids)})
    found: dict[UUID, dict[int, int]] = {}
    for row in rows:
        found.setdefault(row.agent_id, {})[row.placement_id] = row.rows
    return found


async def neighbours(
    connection: Connection, agent_ids: Sequence[UUID], namespace_id: int, namespace: str
) -> dict[UUID, list[RunningJob]]:
    """Return {agent: the jobs of a namespace of which it has something under way}."""
    rows = await connection.execute(_NEIGHBOURS, {"agents": list(agent_ids), "namespace_id": namespace_id})
    found: dict[UUID, list[RunningJob]] = {}
    for row in rows:
        found.setdefault(row.agent_id, []).append(RunningJob(namespace, row.job, row.labels or {}))
    return found


async def place(connection: Connection, waiting: Subject) -> QueuePlace:
    """Return what goes before a pending instance that is bound to no agent, counted up to a cap."""
    row = (
        await connection.execute(
            _PLACE,
            {
                "namespace_id": waiting.namespace_id,
                "placement_id": waiting.placement_id,
                "priority": waiting.priority,
                "due_at": waiting.due_at,
                "id": waiting.instance_id,
                "most": _MOST_AHEAD,
            },
        )
    ).one()
    return QueuePlace(row.higher, row.earlier, max(row.higher, row.earlier) >= _MOST_AHEAD)


async def held_before(connection: Connection, held: Subject) -> int:
    """Return how many are let go before one that its key holds, up to a cap."""
    return await _count(
        connection,
        _HELD_BEFORE,
        {
            "namespace_id": held.namespace_id,
            "key": held.concurrency_key,
            "priority": held.priority,
            "due_at": held.due_at,
            "id": held.instance_id,
        },
    )


async def queued_before(connection: Connection, held: Subject) -> int:
    """Return how many fires of its schedule wait before this one, up to a cap."""
    return await _count(
        connection,
        _QUEUED_BEFORE,
        {"schedule_id": held.schedule_id, "due_at": held.due_at, "id": held.instance_id},
    )


async def open_nodes(connection: Connection, run: UUID, most: int) -> list[OpenNode]:
    """Return nodes of a run that are under way, or wait for something."""
    rows = await connection.execute(_OPEN_NODES, {"run": run, "most": most})
    return [OpenNode(**row.as_dict()) for row in rows]


async def _count(connection: Connection, statement: str, parameters: Mapping[str, Any]) -> int:
    row = await connection.execute(statement, {**parameters, "most": _MOST_AHEAD})
    return int(row.scalar_one())
