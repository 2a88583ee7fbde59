"""Lists of tasks that cost the same however much has happened: indexes are walked, and only so far.

A list goes along one index whose columns never change, by id, and looks at a bounded number of rows. What
has not ended is found in the queue, which is small. A page may therefore be short, even empty, and yet have
a next one: it says from where to go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from psycopg.types.json import Jsonb

from hetuflow_core.ids import range_of
from hetuflow_core.resources.tasks import Task
from hetuflow_core.states import TASK_TERMINAL
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.keyset import MOST_READ, MOST_SCOPES, Found, Total
from hetuflow_server.queue.tasks_store import COLUMNS, FROM

_FIRST, _LAST = UUID(int=0), UUID(int=2**128 - 1)
_RUNNING, _WAITING_RETRY = "running", "waiting_retry"
_ENDED: Final = frozenset(status.value for status in TASK_TERMINAL)
_ENDED_LIST: Final = ", ".join(f"'{status}'" for status in sorted(_ENDED))

_NAMESPACES = "SELECT id FROM sched_namespace WHERE name = ANY(%(namespaces)s::text[]) ORDER BY id"

_JOBS = """
SELECT j.id FROM sched_job j JOIN sched_namespace n ON n.id = j.namespace_id
WHERE (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s))
  AND (%(job)s::text IS NULL OR j.name = %(job)s) AND j.labels @> %(labels)s::jsonb
ORDER BY j.id"""

_WITHIN = "{id} >= %(first)s AND {id} < %(last)s"

# A pair and not an equality: that would be dropped from the order, and then another index would do as well.
_ALONG = "(t.{axis}, t.id) >= (s.scope, %(first)s) AND (t.{axis}, t.id) < (s.scope, %(last)s) AND"

# Of each scope, in order: at most so many rows are read, and of these those that are wanted.
_WALK = """
SELECT s.scope, w.id FROM {scopes} AS s(scope) CROSS JOIN LATERAL (
  SELECT walked.id FROM (
    SELECT t.id, t.status, t.namespace_id, t.job_id FROM sched_task t
    WHERE {on} {within} ORDER BY {by_t} LIMIT %(most)s) walked
  WHERE {wanted} ORDER BY {by_walked} LIMIT %(limit)s) w"""

# Where the reading of a scope ended, if it did so before the scope did.
_END = """
SELECT e.id FROM {scopes} AS s(scope) CROSS JOIN LATERAL (
  SELECT t.id FROM sched_task t WHERE {on} {within} ORDER BY {by_t} OFFSET %(most)s - 1 LIMIT 1) e
ORDER BY e.id {order} LIMIT 1"""

_COUNT = """
SELECT count(*) AS read, count(*) FILTER (WHERE {wanted}) AS found FROM (
  SELECT w.* FROM {scopes} AS s(scope) CROSS JOIN LATERAL (
    SELECT t.status, t.namespace_id, t.job_id FROM sched_task t
    WHERE {on} {within} ORDER BY {by_t} LIMIT %(most)s) w LIMIT %(most)s) walked"""

# As many as agents have slots, whatever waits; planned apart, or the index of what waits might be taken.
_RUNNING_NOW = """
WITH claimed AS MATERIALIZED (
  SELECT i.task_id, i.status, i.namespace_id, i.job_id FROM sched_task_instance i
  WHERE i.claimed)
SELECT walked.task_id AS id FROM claimed walked
WHERE walked.status = 'running' AND {within} AND {wanted} ORDER BY walked.task_id {order} LIMIT %(limit)s"""

_WAITING_NOW = """
SELECT walked.task_id AS id FROM (
  SELECT i.task_id, i.status, i.namespace_id, i.job_id FROM sched_task_instance i
  WHERE {within} ORDER BY i.task_id {order} LIMIT %(most)s) walked
WHERE walked.status <> 'running' AND {wanted}
  AND (SELECT t.status = 'waiting_retry' AND t.due_at > clock_timestamp() FROM sched_task t
       WHERE t.id = walked.task_id) = %(waiting)s
ORDER BY walked.task_id {order} LIMIT %(limit)s"""

_UNFINISHED_NOW = """
SELECT walked.task_id AS id FROM (
  SELECT i.task_id, i.namespace_id, i.job_id FROM sched_task_instance i
  WHERE {within} ORDER BY i.task_id {order} LIMIT %(most)s) walked
WHERE {wanted} ORDER BY walked.task_id {order} LIMIT %(limit)s"""

_WAITING_END = """
SELECT i.task_id AS id FROM sched_task_instance i
WHERE {within} ORDER BY i.task_id {order} OFFSET %(most)s - 1 LIMIT 1"""

SHOWN = f"""
SELECT {COLUMNS} {FROM} WHERE t.id = ANY(%(ids)s::uuid[]) AND t.id BETWEEN %(first)s AND %(last)s"""


@dataclass(frozen=True, slots=True)
class TaskFilter:
    namespace: str | None = None
    job: str | None = None
    # Of the job.
    labels: Mapping[str, str] = field(default_factory=dict)
    # As it is shown.
    status: str | None = None
    # Ids: at or after, and before.
    since: UUID | None = None
    until: UUID | None = None
    # Those that may be looked in; None: all.
    namespaces: Sequence[str] | None = None

    @property
    def empty(self) -> bool:
        """Whether it leaves nothing out of what may be looked at."""
        given = (self.namespace, self.job, self.status, self.since, self.until)
        return not self.labels and all(one is None for one in given)


@dataclass(frozen=True, slots=True)
class Scope:
    """What is walked, and what is left out on the way."""

    # The column of an index, and values of it; None: all tasks.
    axis: str | None = None
    values: Sequence[Any] = ()
    namespaces: Sequence[int] | None = None
    jobs: Sequence[UUID] | None = None

    @property
    def nothing(self) -> bool:
        return (self.axis is not None and not self.values) or self.namespaces == [] or self.jobs == []

    @property
    def wanted(self) -> str:
        conditions = []
        if self.namespaces is not None:
            conditions.append("walked.namespace_id = ANY(%(namespaces)s::integer[])")
        if self.jobs is not None:
            conditions.append("walked.job_id = ANY(%(jobs)s::uuid[])")
        return " AND ".join(conditions) or "true"


async def scope_of(connection: Connection, wanted: TaskFilter) -> Scope:
    """Return the shortest way along an index to what is wanted."""
    allowed = None if wanted.namespaces is None else list(wanted.namespaces)
    namespaces = None
    if allowed is not None:
        found = await connection.execute(_NAMESPACES, {"namespaces": allowed})
        namespaces = list(found.scalars())
    jobs = None
    if wanted.job is not None or wanted.labels:
        named = {"namespaces": allowed, "job": wanted.job, "labels": Jsonb(dict(wanted.labels))}
        jobs = list((await connection.execute(_JOBS, named)).scalars())
        if len(jobs) <= MOST_SCOPES:
            return Scope("job_id", jobs, namespaces, jobs)
    if namespaces is not None and len(namespaces) <= MOST_SCOPES:
        return Scope("namespace_id", namespaces, namespaces, jobs)
    return Scope(None, (), namespaces, jobs)


@dataclass(frozen=True, slots=True)
class TaskListQuery:
    """One list: what is looked for, and which way."""

    scope: Scope
    wanted: TaskFilter
    oldest_first: bool = False
    # Exclusive.
    position: UUID | None = None
    # Whatever their status is: only those that have ended, or only those that have not.
    ended: bool | None = None

    @property
    def bounds(self) -> dict[str, UUID]:
        first, last = self.wanted.since or _FIRST, self.wanted.until or _LAST
        if self.position is not None and self.oldest_first:
            first = max(first, UUID(int=self.position.int + 1))
        elif self.position is not None:
            last = min(last, self.position)
        return {"first": first, "last": last}

    def statement(self, template: str, id_: str, wanted: str = "true") -> str:
        axis = self.scope.axis
        kind = {"namespace_id": "integer", "job_id": "uuid"}.get(axis or "")
        order = "ASC" if self.oldest_first else "DESC"
        columns = [axis, "id"] if axis else ["id"]
        return template.format(
            scopes=f"unnest(%(scopes)s::{kind}[])" if axis else "(VALUES (0))",
            on=_ALONG.format(axis=axis) if axis else "",
            within=_WITHIN.format(id=id_),
            wanted=wanted,
            order=order,
            by_t=", ".join(f"t.{column} {order}" for column in columns),
            by_walked=", ".join(f"walked.{column} {order}" for column in columns),
        )

    def parameters(self, **more: Any) -> dict[str, Any]:
        scope = self.scope
        return {
            **self.bounds,
            "scopes": list(scope.values),
            "namespaces": scope.namespaces,
            "jobs": scope.jobs,
            "status": self.wanted.status,
            **more,
        }

    @property
    def left_out(self) -> str:
        """Which of the rows that are walked are wanted."""
        scope = self.scope
        # What the axis says already need not be asked again.
        rest = Scope(
            None,
            (),
            None if scope.axis in {"namespace_id", "job_id"} else scope.namespaces,
            None if scope.axis == "job_id" else scope.jobs,
        ).wanted
        if self.wanted.status is not None:
            return f"{rest} AND walked.status = %(status)s"
        return f"{rest} AND walked.status IN ({_ENDED_LIST})" if self.ended else rest

    @property
    def by_status(self) -> bool:
        """Whether it is the queue that knows."""
        if self.wanted.status is None:
            return self.ended is False
        return self.wanted.status not in _ENDED

    def merged(self, ids: Sequence[UUID]) -> list[UUID]:
        return sorted(ids, reverse=not self.oldest_first)

    def before(self, one: UUID, other: UUID) -> bool:
        return one < other if self.oldest_first else one > other


async def find(connection: Connection, walk: TaskListQuery, limit: int, most: int = MOST_READ) -> Found:
    """Return the ids of up to `limit` tasks, in order, after at most `most` rows that were looked at."""
    if walk.scope.nothing:
        return Found([], None)
    if walk.by_status:
        return await _find_unfinished(connection, walk, limit, most)
    return await _find_along(connection, walk, limit, most)


async def _find_along(connection: Connection, walk: TaskListQuery, limit: int, most: int) -> Found:
    bounded = walk.left_out != "true"
    each = max(limit + 1, most // max(1, len(walk.scope.values))) if bounded else limit + 1
    parameters = walk.parameters(most=each, limit=limit + 1)
    rows = await connection.execute(walk.statement(_WALK, "t.id", walk.left_out), parameters)
    per_scope = Counter(row.scope for row in rows)
    end = None
    short = [one for one in walk.scope.values or (0,) if per_scope[one] <= limit]
    if bounded and short:
        ended = await connection.execute(walk.statement(_END, "t.id"), {**parameters, "scopes": short})
        end = ended.scalar_one_or_none()
    return page_of(walk, [row.id for row in rows], end, limit)


async def _find_unfinished(connection: Connection, walk: TaskListQuery, limit: int, most: int) -> Found:
    parameters = walk.parameters(most=most, limit=limit + 1, waiting=walk.wanted.status == _WAITING_RETRY)
    if walk.wanted.status == _RUNNING:
        statement = walk.statement(_RUNNING_NOW, "walked.task_id", walk.scope.wanted)
        rows = await connection.execute(statement, parameters)
        return page_of(walk, list(rows.scalars()), None, limit)
    template = _UNFINISHED_NOW if walk.wanted.status is None else _WAITING_NOW
    rows = await connection.execute(walk.statement(template, "i.task_id", walk.scope.wanted), parameters)
    end = None
    if len(rows) <= limit:
        ended = await connection.execute(walk.statement(_WAITING_END, "i.task_id"), parameters)
        end = ended.scalar_one_or_none()
    return page_of(walk, list(rows.scalars()), end, limit)


def page_of(walk: TaskListQuery, found: Sequence[UUID], end: UUID | None, limit: int) -> Found:
    """Put together what was found in the scopes, as far as all of them were read."""
    ids = walk.merged(found)
    if end is not None:
        ids = [one for one in ids if not walk.before(end, one)]
    if len(ids) > limit:
        return Found(ids[:limit], ids[limit - 1])
    return Found(ids, end)


async def count(connection: Connection, walk: TaskListQuery, cap: int, most: int = MOST_READ) -> Total:
    """Return how many there are, as far as they are counted."""
    if walk.scope.nothing:
        return Total(0, capped=False)
    if walk.by_status:
        found = await _find_unfinished(connection, walk, cap, most)
        return Total(len(found.ids), found.position is not None)
    bounded = walk.left_out != "true"
    most = most if bounded else cap + 1
    row = (
        await connection.execute(walk.statement(_COUNT, "t.id", walk.left_out), walk.parameters(most=most))
    ).one()
    return Total(min(row.found, cap), row.found > cap or row.read >= most)


async def shown(connection: Connection, ids: Sequence[UUID]) -> list[Task]:
    """Return tasks in the order of these ids; those that are gone are left out."""
    if not ids:
        return []
    first, last = range_of(ids)
    rows = await connection.execute(SHOWN, {"ids": list(ids), "first": first, "last": last})
    tasks = {row.id: Task(**row.as_dict()) for row in rows}
    return [tasks[one] for one in ids if one in tasks]
