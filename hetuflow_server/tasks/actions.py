"""What people do with tasks: run a job, look, cancel, run again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core import ids
from hetuflow_core.errors import Conflict, Invalid, NotFound
from hetuflow_core.resources.tasks import RunRequest, Task, TaskDetail, TaskInstance
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.cluster.hints import Hints, backlog_topic
from hetuflow_server.jobs import store as job_store
from hetuflow_server.jobs.versions import JobVersion, JobVersions
from hetuflow_server.postgres.database import Connection, Database, Lane
from hetuflow_server.queue import create_transitions, live_transitions, tasks_store as task_store
from hetuflow_server.queue.create_transitions import JobChanged
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.rows import NewInstance, NewTask
from hetuflow_server.queue.tasks_store import LockedTask
from hetuflow_server.queue.waiting_polls import DirectHandoff
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.tasks import idempotency_store
from hetuflow_server.tasks.new_tasks import (
    CreatedTasks,
    Holder,
    arrivals,
    check,
    due,
    first_instance,
    note_tasks,
    shown_first,
    shown_new,
    targets,
)

MOST_RUNS = 1_000


class TaskActions:
    def __init__(
        self,
        database: Database,
        hints: Hints,
        versions: JobVersions,
        finisher: Finisher,
        clock: Clock,
        *,
        hand_off: Callable[[NewInstance], DirectHandoff | None] | None = None,
    ) -> None:
        self._database = database
        self._hints = hints
        self._versions = versions
        self._finisher = finisher
        self._clock = clock
        # Chooses a waiting poll for a new instance; None in a process without a dispatcher.
        self._hand_off = hand_off

    async def run(self, context: RequestContext, job_id: UUID, requests: Sequence[RunRequest]) -> list[UUID]:
        """Create a task for each request, all or none; return their ids in order."""
        return [task.id for task in (await self._run(context, job_id, requests)).tasks]

    async def run_one(self, context: RequestContext, job_id: UUID, request: RunRequest) -> TaskDetail:
        made = await self._run(context, job_id, [request])
        (task,) = made.tasks
        if task.id not in made.created_at:
            return await self.task(context, task.id)
        return TaskDetail(**shown_new(task, made), instances=[shown_first(task, made.holder)])

    async def run_many(
        self, context: RequestContext, job_id: UUID, requests: Sequence[RunRequest]
    ) -> list[Task]:
        made = await self._run(context, job_id, requests)
        if len(made.created_at) < len(made.tasks):
            return await self.tasks_by_id(context, [task.id for task in made.tasks])
        return [Task(**shown_new(task, made)) for task in made.tasks]

    async def _run(
        self, context: RequestContext, job_id: UUID, requests: Sequence[RunRequest]
    ) -> CreatedTasks:
        if not 1 <= len(requests) <= MOST_RUNS:
            raise Invalid(f"One to {MOST_RUNS} runs can be asked for at once.")
        bare = all(request.idempotency_key is None and request.agent is None for request in requests)
        known = self._versions.latest(job_id)
        if known is not None and bare and not known.has_keys and context.sees(known.namespace):
            # What does not fit it, or no longer may be run, may fit the job as it is now.
            with suppress(Invalid, JobChanged):
                return await self._run_plain(context, known, self._new_tasks(known, requests, context))
        while True:
            version = await self._current(context, job_id)
            new = self._new_tasks(version, requests, context)
            if version.has_keys or not bare:
                return await self._run_in_steps(context, version, requests, new)
            with suppress(JobChanged):
                return await self._run_plain(context, version, new)

    async def _current(self, context: RequestContext, job_id: UUID) -> JobVersion:
        async with self._database.reading(context, lane=Lane.PLANNED) as connection:
            row = await job_store.job_by_id(connection, job_id)
        if row is None or not context.sees(row.namespace):
            raise NotFound("There is no such job.", code="job.not_found")
        if not row.enabled:
            raise Conflict(f"The job {row.name} is disabled: enable it first.", code="job.disabled")
        return self._versions.of(row)

    def _new_tasks(
        self, version: JobVersion, requests: Sequence[RunRequest], context: RequestContext
    ) -> list[NewTask]:
        check(version, requests, self._clock.now())
        return [self._new_task(version, request, context) for request in requests]

    async def _run_plain(
        self, context: RequestContext, version: JobVersion, new: list[NewTask]
    ) -> CreatedTasks:
        """Create what was not there before and nothing holds, in one transaction of one round trip.

        JobChanged: this is not, or no longer, the version that may be run.
        """
        first = [first_instance(task, version, None) for task in new]
        # With an idempotency key the task becomes visible only when the response is stored.
        if self._hand_off is not None and len(first) == 1 and context.enclosing is None:
            handoff = self._hand_off(first[0])
            if handoff is not None:
                return await self._run_handed_off(context, version, new[0], first[0], handoff)
        async with self._database.single(context, lane=Lane.PLANNED) as connection:
            note_tasks(context.audit, version, new)
            created_at = await create_transitions.create_runs(connection, new, first)
        self._hints.give(arrivals(first), context)
        # Let the dispatcher, which the hints woke, send its claim to the database before the response is
        # built. There is nothing to wait for: a claim that is under way already must not delay the response.
        await asyncio.sleep(0)
        return CreatedTasks(version, new, created_at)

    async def _run_handed_off(
        self,
        context: RequestContext,
        version: JobVersion,
        task: NewTask,
        first: NewInstance,
        handoff: DirectHandoff,
    ) -> CreatedTasks:
        """Create a task whose first instance is reserved for a waiting poll, and deliver the instance."""
        async with handoff, self._database.single(context, lane=Lane.PLANNED) as connection:
            note_tasks(context.audit, version, [task])
            created = await create_transitions.create_reserved(connection, task, first, handoff.recipient)
            handoff.created = created.claimed
        if not handoff.delivered:
            # The instance was released: it is pending again, or another agent has claimed it since.
            return CreatedTasks(version, [task], {})
        return CreatedTasks(
            version, [task], {task.id: created.created_at}, Holder(handoff.agent, created.reserved_at)
        )

    async def _run_in_steps(
        self, context: RequestContext, version: JobVersion, requests: Sequence[RunRequest], new: list[NewTask]
    ) -> CreatedTasks:
        """Create what was not asked for before under its key; its state is to be read, it may be held."""
        async with self._database.transaction(context) as connection:
            bound = await targets(connection, version, requests)
            tasks = [
                await self._once(connection, context, version, request, task)
                for request, task in zip(requests, new, strict=True)
            ]
            asked = zip(tasks, requests, strict=True)
            fresh = [(task, request) for (task, is_new), request in asked if is_new]
            instances = [
                first_instance(task, version, bound[request.agent] if request.agent else None)
                for task, request in fresh
            ]
            note_tasks(context.audit, version, [task for task, _ in fresh])
            await create_transitions.create(connection, [task for task, _ in fresh], instances)
        self._hints.give(arrivals(instances), context)
        return CreatedTasks(version, [task for task, _ in tasks], {})

    async def task(self, context: RequestContext, task_id: UUID) -> TaskDetail:
        async with self._database.transaction(context) as connection:
            found = await task_store.task_detail(connection, task_id)
        if found is None or not context.sees(found.namespace):
            raise _no_task()
        return found

    async def tasks_by_id(self, context: RequestContext, task_ids: Sequence[UUID]) -> list[Task]:
        async with self._database.transaction(context) as connection:
            found = await task_store.tasks_by_id(connection, task_ids)
        return [found[task_id] for task_id in task_ids]

    async def cancel(self, context: RequestContext, task_id: UUID) -> TaskDetail:
        """End what waits at once; ask the agent of what runs. Cancelling twice is cancelling once."""
        found = await self.task(context, task_id)
        async with self._database.transaction(context) as connection:
            task = _existing(await self._finisher.lock_tasks(connection, [task_id]), task_id)
            context.audit.note_change("task", task_id, found.namespace, before={"status": task.status})
            if task.finished_at is not None and task.status != "cancelled":
                raise Conflict(f"The task has ended already: it {task.status}.", code="task.finished")
            live = await task_store.live_instances(connection, tasks=[task_id])
            settled = await self._finisher.cancel(connection, sorted(live), "cancelled")
            asked = {"ended": sorted(map(str, settled.ended)), "asked": sorted(map(str, settled.asked))}
            context.audit.note_after("task", task_id, {"cancel": asked})
        self._hints.give(settled.hints, context)
        return await self.task(context, task_id)

    async def set_priority(self, context: RequestContext, task_id: UUID, priority: int) -> TaskDetail:
        """Have what waits claimed sooner or later; what runs already is tried again with it."""
        found = await self.task(context, task_id)
        async with self._database.transaction(context) as connection:
            task = await self._lock(connection, task_id)
            if task.finished_at is not None:
                raise Conflict(f"The task has ended already: it {task.status}.", code="task.finished")
            before = {"priority": task.priority}
            context.audit.note_change(
                "task", task_id, found.namespace, before=before, after={"priority": priority}
            )
            head = await live_transitions.set_priority(connection, task_id, priority)
        if head is not None:
            self._hints.give([backlog_topic(*head, priority)], context)
        return await self.task(context, task_id)

    async def instance(self, context: RequestContext, instance_id: UUID) -> TaskInstance:
        async with self._database.transaction(context) as connection:
            return (await _find_instance(connection, context, instance_id))[0]

    async def terminate(self, context: RequestContext, instance_id: UUID) -> TaskInstance:
        """End one attempt: its task is tried again if it may be. Twice is once."""
        async with self._database.transaction(context) as connection:
            instance, namespace = await _find_instance(connection, context, instance_id)
            task_id = instance.task_id
            _existing(await self._finisher.lock_tasks(connection, [task_id]), task_id)
            settled = await self._finisher.terminate(connection, task_id, instance_id)
            if instance_id not in settled.asked:
                raise Conflict(
                    f"No agent runs this attempt, it is {instance.status}: cancel its task instead.",
                    code="task_instance.not_running",
                )
            before = {"status": instance.status}
            context.audit.note_change(
                "task instance", instance_id, namespace, before=before, after={"reason": "terminated"}
            )
            ended = await task_store.instance_by_id(connection, instance_id)
        self._hints.give(settled.hints, context)
        return instance if ended is None else ended[0]

    async def repeat(
        self, context: RequestContext, task_id: UUID, *, from_failed: bool = False
    ) -> TaskDetail:
        """Make a new task of a finished one: same version, same parameters.

        `from_failed`: of a flow, whose new run takes over what has succeeded.
        """
        found = await self.task(context, task_id)
        async with self._database.transaction(context) as connection:
            task = await self._lock(connection, task_id)
            if task.finished_at is None:
                raise Conflict(
                    "The task has not ended yet: cancel it first, or wait.", code="task.unfinished"
                )
            repetition = await task_store.count_repetition(connection, task_id)
            new, first = await self._repetition(connection, context, found, repetition)
            if from_failed:
                new = replace(new, flow_context=_json({"from_failed": True}))
            await create_transitions.create(connection, [new], [first])
        self._hints.give(arrivals([first]), context)
        return await self.task(context, new.id)

    async def repeat_many(self, context: RequestContext, tasks: Sequence[Task]) -> list[UUID]:
        """Repeat those of these that have ended and were never repeated; return the new ones.

        Not the nodes of flows and what keeps a daemon alive: their flow and their schedule repeat them.
        """
        async with self._database.transaction(context) as connection:
            await task_store.lock_tasks(connection, [task.id for task in tasks])
            fresh = await task_store.count_first_repetitions(connection, [task.id for task in tasks])
            made = [
                await self._repetition(connection, context, task, 1) for task in tasks if task.id in fresh
            ]
            await create_transitions.create(
                connection, [new for new, _ in made], [first for _, first in made]
            )
        self._hints.give(arrivals([first for _, first in made]), context)
        return [new.id for new, _ in made]

    async def _repetition(
        self, connection: Connection, context: RequestContext, task: Task, repetition: int
    ) -> tuple[NewTask, NewInstance]:
        """Return the n-th repetition of a task and its first instance, for the same agent if it had to be."""
        version = await self._versions.get(connection, task.job_id, task.job_version)
        now = self._clock.now()
        new = NewTask(
            id=ids.task_of_repeat(task.id, repetition, now),
            namespace_id=version.namespace_id,
            job_id=task.job_id,
            job_version=task.job_version,
            schedule_id=None,
            retry_of=task.id,
            params=_json(task.params),
            priority=task.priority,
            fire_at=now,
            due_at=now,
            deadline_at=version.deadline_at(now),
            traceparent=None,
            created_by=context.principal.name,
        )
        context.audit.note_change("task", new.id, task.namespace, after={"retry_of": str(task.id)})
        return new, first_instance(new, version, await task_store.target_of(connection, task.id))

    async def _lock(self, connection: Connection, task_id: UUID) -> LockedTask:
        return _existing(await task_store.lock_tasks(connection, [task_id]), task_id)

    async def _once(
        self,
        connection: Connection,
        context: RequestContext,
        version: JobVersion,
        request: RunRequest,
        task: NewTask,
    ) -> tuple[NewTask, bool]:
        """Return the task, or the one an earlier request with this key made, and whether it is new."""
        if request.idempotency_key is None:
            return task, True
        known = await idempotency_store.remember(
            connection,
            namespace_id=version.namespace_id,
            scope=f"run:{version.job_id}:{context.principal.id}",
            key=request.idempotency_key,
            body_digest=sha256(_json(request).encode()).digest(),
            response={"task_id": str(task.id)},
        )
        return (task, True) if known is None else (replace(task, id=UUID(known["task_id"])), False)

    def _new_task(self, version: JobVersion, request: RunRequest, context: RequestContext) -> NewTask:
        now = self._clock.now()
        due_at = due(now, request.run_at)
        return NewTask(
            id=ids.new_id(now, secrets.token_bytes(10)),
            namespace_id=version.namespace_id,
            job_id=version.job_id,
            job_version=version.version,
            schedule_id=None,
            retry_of=None,
            params=_json({**version.spec.params, **request.params}),
            priority=version.spec.priority if request.priority is None else request.priority,
            fire_at=due_at,
            due_at=due_at,
            deadline_at=version.deadline_at(due_at),
            traceparent=None,
            created_by=context.principal.name,
        )


async def _find_instance(
    connection: Connection, context: RequestContext, instance_id: UUID
) -> tuple[TaskInstance, str]:
    """Return an instance and the name of its namespace."""
    found = await task_store.instance_by_id(connection, instance_id)
    if found is None or not context.sees(found[1]):
        raise NotFound("There is no such task instance.", code="task_instance.not_found")
    return found


def _existing(locked: Mapping[UUID, LockedTask], task_id: UUID) -> LockedTask:
    if task_id not in locked:
        raise _no_task()
    return locked[task_id]


def _no_task() -> NotFound:
    return NotFound("There is no such task.", code="task.not_found")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
