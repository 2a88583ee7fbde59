"""Looking at tasks, page by page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from hetuflow_core.errors import Invalid
from hetuflow_core.resources.tasks import ListedInstance, Task
from hetuflow_core.states import TaskStatus
from hetuflow_server.postgres.database import Database, Lane
from hetuflow_server.postgres.keyset import Total
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.tasks.lists import instances_store as instance_store, store
from hetuflow_server.tasks.lists.store import TaskFilter, TaskListQuery

# Running is shown from an instance, and never stored.
STATUSES: Final = frozenset(TaskStatus) | {"running"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: behind this task. What was counted for the first page holds for all."""

    id: UUID
    total: int
    capped: bool


@dataclass(frozen=True, slots=True)
class TaskPage:
    tasks: list[Task]
    next: Place | None
    total: Total


@dataclass(frozen=True, slots=True)
class InstancePage:
    instances: list[ListedInstance]
    next: Place | None
    total: Total


class TaskLists:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self,
        context: RequestContext,
        wanted: TaskFilter,
        *,
        limit: int,
        cap: int,
        place: Place | None = None,
        oldest_first: bool = False,
    ) -> TaskPage:
        """Return up to `limit` tasks, and where to go on; there may be a next page behind a short one."""
        wanted = within_reach(context, wanted)
        async with self._database.transaction(context, lane=Lane.INDEX_ORDER) as connection:
            scope = await store.scope_of(connection, wanted)
            walk = TaskListQuery(
                scope, wanted, oldest_first=oldest_first, position=place.id if place else None
            )
            found = await store.find(connection, walk, limit)
            tasks = await store.shown(connection, found.ids)
            if place is None:
                total = await store.count(connection, replace(walk, position=None), cap)
            else:
                total = Total(place.total, place.capped)
        # What has changed between two statements is not what was asked for any more.
        fitting = [task for task in tasks if wanted.status is None or task.status == wanted.status]
        next_ = None if found.position is None else Place(found.position, total.count, total.capped)
        return TaskPage(fitting, next_, total)

    async def instances(
        self,
        context: RequestContext,
        wanted: TaskFilter,
        *,
        agent: str | None,
        limit: int,
        cap: int,
        place: Place | None = None,
        oldest_first: bool = False,
    ) -> InstancePage:
        """The same of attempts, those that wait or run and those that have ended."""
        wanted = replace(wanted, namespaces=context.reach(wanted.namespace))
        async with self._database.transaction(context, lane=Lane.INDEX_ORDER) as connection:
            scope = await store.scope_of(connection, wanted)
            walk = TaskListQuery(
                scope, wanted, oldest_first=oldest_first, position=place.id if place else None
            )
            agent_id = await instance_store.agent_id(connection, agent) if agent is not None else None
            if agent is not None and agent_id is None:
                return InstancePage([], None, Total(0, capped=False))
            found = await instance_store.find(connection, walk, agent_id, limit)
            shown = await instance_store.shown(connection, found.ids)
            if place is None:
                total = await instance_store.count(connection, replace(walk, position=None), agent_id, cap)
            else:
                total = Total(place.total, place.capped)
        fitting = [one for one in shown if wanted.status is None or one.status == wanted.status]
        next_ = None if found.position is None else Place(found.position, total.count, total.capped)
        return InstancePage(fitting, next_, total)


def within_reach(context: RequestContext, wanted: TaskFilter) -> TaskFilter:
    """Return the filter as far as the asker may look; refuse a status that there is none of."""
    if wanted.status is not None and wanted.status not in STATUSES:
        raise Invalid(f"There is no task status {wanted.status}: use one of {', '.join(sorted(STATUSES))}.")
    return replace(wanted, namespaces=context.reach(wanted.namespace))
