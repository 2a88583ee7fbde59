"""Cancelling and repeating many tasks at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from hetuflow_core.errors import Invalid
from hetuflow_core.resources.bulk import BulkItem, BulkResult
from hetuflow_core.resources.tasks import Task
from hetuflow_core.states import TASK_TERMINAL
from hetuflow_server.bulk.service import SAMPLE, Tally, dry_run, in_batches, most_at_once, refuse_unless_meant
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.postgres.database import Database, Lane
from hetuflow_server.queue import tasks_store as task_store
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.tasks.actions import TaskActions
from hetuflow_server.tasks.lists import store
from hetuflow_server.tasks.lists.service import within_reach
from hetuflow_server.tasks.lists.store import TaskFilter, TaskListQuery

_MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Selected:
    """Which tasks are meant, and from where on."""

    wanted: TaskFilter
    everything: bool
    dry_run: bool
    position: UUID | None


class BulkTasks:
    def __init__(
        self, database: Database, hints: Hints, finisher: Finisher, task_actions: TaskActions
    ) -> None:
        self._database = database
        self._hints = hints
        self._finisher = finisher
        self._task_actions = task_actions

    async def cancel(self, context: RequestContext, selected: Selected) -> tuple[BulkResult, UUID | None]:
        """Cancel what has not ended; return what came of it, and from where to go on."""

        async def act(batch: Sequence[Task]) -> int:
            return await self._cancel(
                context, [task.id for task in batch], {task.id: task.namespace for task in batch}
            )

        return await self._each(context, selected, act, ended=False)

    async def repeat(self, context: RequestContext, selected: Selected) -> tuple[BulkResult, UUID | None]:
        """Repeat what has ended and was never repeated; flows repeat their nodes, and schedules daemons."""

        async def act(batch: Sequence[Task]) -> int:
            return len(await self._task_actions.repeat_many(context, batch))

        return await self._each(context, selected, act, ended=True)

    async def _each(
        self,
        context: RequestContext,
        selected: Selected,
        act: Callable[[Sequence[Task]], Awaitable[int]],
        *,
        ended: bool,
    ) -> tuple[BulkResult, UUID | None]:
        wanted = selected.wanted
        refuse_unless_meant(empty=wanted.empty, everything=selected.everything)
        if wanted.namespace is not None:
            context.require_namespace(wanted.namespace)
        wanted = within_reach(context, wanted)
        _refuse_status(wanted, ended=ended)
        limit = SAMPLE if selected.dry_run else most_at_once(context)
        async with self._database.transaction(context, lane=Lane.INDEX_ORDER) as connection:
            scope = await store.scope_of(connection, wanted)
            walk = TaskListQuery(scope, wanted, position=selected.position, ended=ended)
            found = await store.find(connection, walk, limit)
            tasks = {task.id: task for task in await store.shown(connection, found.ids)}
            if selected.dry_run:
                total = await store.count(connection, walk, _MOST_COUNTED)
                sample = [_item(tasks[one]) for one in found.ids if one in tasks]
                return dry_run(sample, total.count, cut=total.capped), None
        tally = Tally(matched=len(tasks))
        await in_batches(tally, list(tasks), lambda batch: act([tasks[one] for one in batch]))
        return tally.result(), found.position

    async def _cancel(self, context: RequestContext, ids: Sequence[UUID], namespaces: dict[UUID, str]) -> int:
        """Cancel a batch; return how many of them were not cancelled, nor over, before."""
        async with self._database.transaction(context) as connection:
            locked = await self._finisher.lock_tasks(connection, ids)
            live = await task_store.live_instances(connection, tasks=list(locked))
            asked = sorted(one.id for one in live.values() if not one.cancel_requested)
            settled = await self._finisher.cancel(connection, asked, "cancelled")
            changed = {live[one].task_id for one in asked}
            for one in asked:
                task_id = live[one].task_id
                before = {"status": locked[task_id].status}
                after = {"cancel": "asked" if one in settled.asked else "ended", "instance": str(one)}
                context.audit.note_change("task", task_id, namespaces[task_id], before=before, after=after)
        self._hints.give(settled.hints, context)
        return len(changed)


def _refuse_status(wanted: TaskFilter, *, ended: bool) -> None:
    if wanted.status is None or (wanted.status in TASK_TERMINAL) == ended:
        return
    what = "cannot be repeated before they have ended" if ended else "have ended and cannot be cancelled"
    raise Invalid(f"Tasks that are {wanted.status} {what}: choose another status.", code="bulk.status")


def _item(task: Task) -> BulkItem:
    return BulkItem(task.id, task.namespace, task.job, task.status)
