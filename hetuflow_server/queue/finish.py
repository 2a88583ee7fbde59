"""Settling: ending an instance, writing its task and running the end hooks, all in one transaction.

Reservations that are released unstarted pass through here as well: both give capacity back.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from hetuflow_core.retry import RETRYABLE, InstanceOutcome
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.states import InstanceStatus, TaskStatus
from hetuflow_server.cluster.hints import Topic, agent_topic, instance_topic, namespace_topic
from hetuflow_server.jobs.versions import JobVersion, JobVersions
from hetuflow_server.logs.output_tail import output_tail
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import live_transitions, tasks_store as task_store, transitions
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.end_decisions import EndDecisions, classified, effective, next_instance
from hetuflow_server.queue.end_hooks import EndHooks, TaskEnd, TaskEnds
from hetuflow_server.queue.live_transitions import EVICTED, TERMINATED
from hetuflow_server.queue.rows import Ended, Ending, Freed
from hetuflow_server.queue.tasks_store import LiveInstance, LockedTask

_RUNNING = InstanceStatus.RUNNING
EndVerb = Callable[[Connection, Sequence[Ending]], Awaitable[list[Ended]]]


@dataclass(slots=True)
class FinishResult:
    # Instances that ended, or were released.
    ended: set[UUID] = field(default_factory=set)
    # Instances whose agents were asked to end them, {instance: agent}.
    asked: dict[UUID, UUID] = field(default_factory=dict)
    # Wake-ups to send after the commit.
    hints: set[Topic] = field(default_factory=set)


class Finisher:
    def __init__(
        self, versions: JobVersions, capacity: Capacity, clock: Clock, rng: random.Random, hooks: EndHooks
    ) -> None:
        self._versions = versions
        self._capacity = capacity
        self.classes = capacity.classes
        self._hooks = hooks
        self._decisions = EndDecisions(clock, rng, hooks.cancel_reasons)

    async def succeed(self, connection: Connection, endings: Sequence[Ending]) -> FinishResult:
        """End instances that succeeded, in one statement; the caller settles instances that are not returned.

        The caller wakes clients that follow one of them with `Hints.give_ended`: topics would cost too much.
        """
        done = await transitions.succeed(connection, endings, sum_up=not self._hooks.need_each_end)
        task_ends = [TaskEnd(instance, TaskStatus.SUCCEEDED) for instance in done.each]
        ends = TaskEnds(done.each, task_ends, groups=done.sums)
        return FinishResult(done.ended, hints=await self._hooks.lock_and_follow(connection, ends))

    async def settle(self, connection: Connection, endings: Sequence[Ending], end: EndVerb) -> FinishResult:
        """End instances with `end`, which guards them; an instance that it does not return has not ended."""
        result = FinishResult()
        instance_ids = [ending.instance_id for ending in endings]
        early_locks = await self._hooks.lock_before_tasks(connection, instances=instance_ids)
        tasks = await task_store.lock_tasks_of(connection, instance_ids)
        if not tasks:
            return result
        # Read under the locks of the tasks, so that no cancel request can be missed.
        live = await task_store.live_instances(connection, ids=instance_ids)
        versions = await self._versions_of(connection, tasks.values())
        valid_endings = [
            classified(
                ending, live[ending.instance_id], task, versions[task.job_id, task.job_version, task.work]
            )
            for ending in effective(endings, live)
            if (task := tasks.get(live[ending.instance_id].task_id)) is not None
        ]
        ended = {instance.id: instance for instance in await end(connection, valid_endings)}
        result.ended.update(ended)
        result.hints.update(map(instance_topic, ended))
        changes, retries, task_ends = [], [], []
        for ending in valid_endings:
            instance = live[ending.instance_id]
            task = tasks[instance.task_id]
            # A finished task stays as it is, even if one of its instances was left in the queue.
            if ending.instance_id in ended and task.finished_at is None:
                version = versions[task.job_id, task.job_version, task.work]
                outcome = await _outcome(connection, ending, instance, version)
                decision = self._decisions.decide(ending, outcome, task, instance, version)
                change = decision.change
                changes.append(change)
                if decision.retry_at is not None:
                    placement_id = await self.classes.changed(
                        connection, instance.placement_id, decision.retry_change
                    )
                    retries.append(next_instance(task, instance, change, placement_id))
                else:
                    last = ended[ending.instance_id]
                    task_ends.append(
                        TaskEnd(last, change.status, change.reason, change.output, task.flow_node)
                    )
        await transitions.write_tasks(connection, changes)
        ends = TaskEnds(list(ended.values()), task_ends, retries)
        result.hints |= await self._hooks.lock_and_follow(connection, ends, early_locks)
        return result

    async def lock_tasks(self, connection: Connection, tasks: Sequence[UUID]) -> dict[UUID, LockedTask]:
        """Lock tasks, and before them the rows that hooks lock first."""
        await self._hooks.lock_before_tasks(connection, tasks=tasks)
        return await task_store.lock_tasks(connection, tasks)

    async def cancel(self, connection: Connection, ids: Sequence[UUID], reason: str) -> FinishResult:
        """End waiting instances immediately, and request the end of running instances."""
        if not ids:
            return FinishResult()
        await self._lock_tasks_of(connection, ids)
        await transitions.lock_instances(connection, ids)
        asked = await transitions.request_cancel(connection, ids)
        if asked:
            await live_transitions.unmark(connection, list(asked))
        agents = {id_: agent for id_, agent in asked.items() if agent is not None}
        result = await self.settle(
            connection,
            [Ending(id_, None, InstanceStatus.CANCELLED, reason=reason) for id_ in ids if id_ not in asked],
            transitions.cancel_unclaimed,
        )
        without_agent = [id_ for id_, agent in asked.items() if agent is None]
        result.hints |= await self._hooks.cancel(connection, without_agent)
        result.asked.update(agents)
        result.hints.update(agent_topic(agent) for agent in agents.values())
        return result

    async def terminate(self, connection: Connection, task_id: UUID, instance_id: UUID) -> FinishResult:
        """Ask the agent of a claimed instance to end it; its locked task is retried if the job allows it."""
        return await self._ask_to_end(connection, task_id, instance_id, TERMINATED)

    async def evict(self, connection: Connection, instance_id: UUID) -> FinishResult:
        """Ask the agent of a running instance to end it; its task runs elsewhere if its losses allow it."""
        tasks = await self._lock_tasks_of(connection, [instance_id])
        live = (await task_store.live_instances(connection, ids=[instance_id])).get(instance_id)
        # An earlier request to end the task or this attempt takes precedence.
        if live is None or live.task_id not in tasks or live.status != _RUNNING or live.cancel_requested:
            return FinishResult()
        return await self._ask_to_end(connection, live.task_id, instance_id, EVICTED)

    async def _ask_to_end(
        self, connection: Connection, task_id: UUID, instance_id: UUID, reason: str
    ) -> FinishResult:
        await transitions.lock_instances(connection, [instance_id])
        asked = await transitions.request_cancel(connection, [instance_id])
        agents = {id_: agent for id_, agent in asked.items() if agent is not None}
        if agents:
            await live_transitions.mark_to_end(connection, [task_id], reason)
        return FinishResult(asked=agents, hints={agent_topic(agent) for agent in agents.values()})

    async def release(self, connection: Connection, held: Sequence[tuple[UUID, UUID]]) -> FinishResult:
        """Release reservations by (instance, token): they are pending again and have spent no attempt."""
        return await self._released(connection, await transitions.release(connection, held))

    async def release_unstarted(
        self, connection: Connection, held: Sequence[tuple[UUID, UUID]]
    ) -> FinishResult:
        """Release instances that were assigned to a disconnected agent, unless they have started."""
        return await self._released(connection, await transitions.release_unstarted(connection, held))

    async def release_expired(self, connection: Connection, namespace_id: int, most: int) -> FinishResult:
        return await self._released(
            connection, await transitions.release_expired(connection, namespace_id, most)
        )

    async def release_former_sessions(
        self, connection: Connection, agent_id: UUID, session_id: UUID | None
    ) -> FinishResult:
        """Release unstarted reservations of all sessions of an agent except this one."""
        return await self._released(
            connection, await transitions.release_former_sessions(connection, agent_id, session_id)
        )

    async def _released(self, connection: Connection, freed: Sequence[Freed]) -> FinishResult:
        hints = await self._capacity.give_back(connection, freed)
        hints.update(namespace_topic(instance.namespace_id) for instance in freed)
        return FinishResult({instance.id for instance in freed}, hints=hints)

    async def _lock_tasks_of(
        self, connection: Connection, instances: Sequence[UUID]
    ) -> dict[UUID, LockedTask]:
        await self._hooks.lock_before_tasks(connection, instances=instances)
        return await task_store.lock_tasks_of(connection, instances)

    async def _versions_of(
        self, connection: Connection, tasks: Iterable[LockedTask]
    ) -> dict[tuple[UUID, int, str | None], JobVersion]:
        keys = {(task.job_id, task.job_version, task.work) for task in tasks}
        return {key: await self._versions.get(connection, *key) for key in keys}


async def _outcome(
    connection: Connection, ending: Ending, instance: LiveInstance, version: JobVersion
) -> InstanceOutcome:
    """Return the input of the retry rules; the log is read only if a rule checks the output."""
    reads = version.reads_output and ending.status in RETRYABLE
    return InstanceOutcome(
        status=ending.status,
        exit_code=ending.exit_code,
        signal=ending.signal,
        oom=ending.oom,
        output_tail=await output_tail(connection, instance.id, instance.claim_no) if reads else "",
    )
