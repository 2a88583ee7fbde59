"""Lists of task instances: the queue and its history, each walked by id, and only so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from hetuflow_core.ids import range_of
from hetuflow_core.resources.tasks import ListedInstance
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.keyset import MOST_READ, Found, Total
from hetuflow_server.queue.tasks_store import INSTANCE_COLUMNS
from hetuflow_server.tasks.lists.store import TaskListQuery, page_of

_LIVE, _HISTORY = "sched_task_instance", "sched_task_instance_history"
_BOUNDS = "t.id >= %(first)s AND t.id < %(last)s"
_COLUMNS = "t.id, t.status, t.namespace_id, t.job_id"

# Of one agent the history has an index that goes on by id; what it holds now is little, and sorted.
_OF_AGENT = "(t.agent_id, t.id) >= (%(agent)s, %(first)s) AND (t.agent_id, t.id) < (%(agent)s, %(last)s) AND"
_HELD = f"(SELECT {_COLUMNS} FROM held t WHERE {_BOUNDS} ORDER BY t.id {{order}} LIMIT %(most)s)"
_WITH_HELD = f"""WITH held AS MATERIALIZED (
  SELECT {_COLUMNS} FROM {_LIVE} t WHERE t.agent_id IS NOT NULL AND t.agent_id = %(agent)s)"""

_SHOWN = f"""
SELECT {INSTANCE_COLUMNS}, n.name AS namespace, j.name AS job
FROM sched_task_instance_all i LEFT JOIN sched_agent a ON a.id = i.agent_id
JOIN sched_namespace n ON n.id = i.namespace_id JOIN sched_job j ON j.id = i.job_id
WHERE i.id = ANY(%(ids)s::uuid[]) AND i.id BETWEEN %(first)s AND %(last)s"""

_AGENT = "SELECT id FROM sched_agent WHERE name = %(name)s"
_TABLES: Final = (_LIVE, _HISTORY)


@dataclass(frozen=True, slots=True)
class _Source:
    """One of the two tables, as it is walked for a list."""

    walk: TaskListQuery
    table: str
    agent: UUID | None

    @property
    def _rows(self) -> tuple[str, str, str]:
        """What comes before, the rows in order, and the order of what is found among them."""
        order = "ASC" if self.walk.oldest_first else "DESC"
        if self.agent is None:
            rows = (
                f"SELECT {_COLUMNS} FROM {self.table} t WHERE {_BOUNDS} ORDER BY t.id {order} LIMIT %(most)s"
            )
            return "", f"({rows})", f"walked.id {order}"
        if self.table == _LIVE:
            return _WITH_HELD, _HELD.format(order=order), f"walked.id {order}"
        rows = (
            f"(SELECT {_COLUMNS}, t.agent_id FROM {_HISTORY} t WHERE {_OF_AGENT} {_BOUNDS} "
            f"ORDER BY t.agent_id {order}, t.id {order} LIMIT %(most)s)"
        )
        return "", rows, f"walked.agent_id {order}, walked.id {order}"

    @property
    def _wanted(self) -> str:
        status = " AND walked.status = %(status)s" if self.walk.wanted.status is not None else ""
        return self.walk.scope.wanted + status

    def _parameters(self, **more: Any) -> dict[str, Any]:
        return self.walk.parameters(agent=self.agent, **more)

    async def found(self, connection: Connection, limit: int, most: int) -> tuple[list[UUID], UUID | None]:
        """Return up to `limit` that are wanted, and where the reading ended if it did so before the table."""
        before, rows, order = self._rows
        parameters = self._parameters(most=most, limit=limit)
        statement = (
            f"{before} SELECT walked.id FROM {rows} walked WHERE {self._wanted} "
            f"ORDER BY {order} LIMIT %(limit)s"
        )
        found = list((await connection.execute(statement, parameters)).scalars())
        if len(found) >= limit:
            return found, None
        statement = f"{before} SELECT walked.id FROM {rows} walked ORDER BY {order} OFFSET %(most)s - 1"
        ended = await connection.execute(statement, parameters)
        return found, ended.scalar_one_or_none()

    async def counted(self, connection: Connection, most: int) -> tuple[int, int]:
        """Return how many are wanted, of how many that were read."""
        before, rows, _ = self._rows
        statement = (
            f"{before} SELECT count(*) FILTER (WHERE {self._wanted}) AS found, count(*) AS read "
            f"FROM {rows} walked"
        )
        row = (await connection.execute(statement, self._parameters(most=most))).one()
        return row.found, row.read


async def agent_id(connection: Connection, name: str) -> UUID | None:
    found: UUID | None = (await connection.execute(_AGENT, {"name": name})).scalar_one_or_none()
    return found


async def find(
    connection: Connection, walk: TaskListQuery, agent: UUID | None, limit: int, most: int = MOST_READ
) -> Found:
    """Return the ids of up to `limit` instances, in order, after at most `most` rows of each table."""
    if walk.scope.nothing:
        return Found([], None)
    ids, ends = list[UUID](), list[UUID]()
    for table in _TABLES:
        found, end = await _Source(walk, table, agent).found(connection, limit + 1, most)
        ids += found
        ends += [] if end is None else [end]
    end = walk.merged(ends)[0] if ends else None
    return page_of(walk, ids, end, limit)


async def count(
    connection: Connection, walk: TaskListQuery, agent: UUID | None, cap: int, most: int = MOST_READ
) -> Total:
    if walk.scope.nothing:
        return Total(0, capped=False)
    found, capped = 0, False
    for table in _TABLES:
        some, read = await _Source(walk, table, agent).counted(connection, most)
        found, capped = found + some, capped or read >= most
    return Total(min(found, cap), capped or found > cap)


async def shown(connection: Connection, ids: Sequence[UUID]) -> list[ListedInstance]:
    """Return instances in the order of these ids; those that are gone are left out."""
    if not ids:
        return []
    first, last = range_of(ids)
    rows = await connection.execute(_SHOWN, {"ids": list(ids), "first": first, "last": last})
    instances = {row.id: ListedInstance(**row.as_dict()) for row in rows}
    return [instances[one] for one in ids if one in instances]
