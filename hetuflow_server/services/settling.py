"""Settling: an instance ends, its task is written, and what follows is inserted, all in one transaction."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.retry import RETRYABLE, GiveUp, GiveUpReason, Outcome, Retry, clip_retry, decide
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.states import InstanceStatus, TaskStatus
from hetuflow_server.services.job_versions import JobVersion, JobVersions
from hetuflow_server.services.output_tail import output_tail
from hetuflow_server.store import tasks as task_store, transitions
from hetuflow_server.store.database import Connection
from hetuflow_server.store.records import Ending, NewInstance, TaskChange
from hetuflow_server.store.tasks import LiveInstance, LockedTask
from hetuflow_server.stream.hints import Topic, instance_topic, namespace_topic

EndVerb = Callable[[Connection, Sequence[Ending]], Awaitable[set[UUID]]]

# The reason of a task that failed by its deadline, and of what was ended for it.
DEADLINE = GiveUpReason.DEADLINE.value
_RUNNING = InstanceStatus.RUNNING
_TASK_STATUS_AFTER = {
    InstanceStatus.SUCCEEDED: TaskStatus.SUCCEEDED,
    InstanceStatus.SKIPPED: TaskStatus.SKIPPED,
    InstanceStatus.CANCELLED: TaskStatus.CANCELLED,
}


@dataclass(slots=True)
class Settled:
    ended: set[UUID] = field(default_factory=set)
    # To be given once the transaction has committed.
    hints: set[Topic] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a task when one of its instances has ended."""

    change: TaskChange
    retry_at: datetime | None


class Settler:
    def __init__(self, versions: JobVersions, clock: Clock, rng: random.Random) -> None:
        self._versions = versions
        self._clock = clock
        self._rng = rng

    async def settle(self, connection: Connection, endings: Sequence[Ending], end: EndVerb) -> Settled:
        """End instances with `end`, which guards; whatever it does not return was not there to end."""
        settled = Settled()
        live = await task_store.live_instances(connection, ids=[ending.instance_id for ending in endings])
        if not live:
            return settled
        tasks = await task_store.lock_tasks(connection, [instance.task_id for instance in live.values()])
        if any(ending.status is not InstanceStatus.SUCCEEDED for ending in endings):
            # Somebody may have cancelled before we had the lock; to a success that makes no difference.
            live = await task_store.live_instances(connection, ids=list(live))
        versions = {
            task.id: await self._versions.get(connection, task.job_id, task.job_version)
            for task in tasks.values()
        }
        known = [
            _classified(ending, tasks[task_id], versions[task_id])
            for ending in endings
            if ending.instance_id in live and (task_id := live[ending.instance_id].task_id) in tasks
        ]
        settled.ended = await end(connection, known)
        changes, followers = [], []
        for ending in known:
            if ending.instance_id in settled.ended:
                instance = live[ending.instance_id]
                task = tasks[instance.task_id]
                outcome = await _outcome(connection, ending, instance, versions[task.id])
                verdict = self._judge(ending, outcome, task, instance, versions[task.id])
                changes.append(verdict.change)
                if verdict.retry_at is not None:
                    followers.append(_next_instance(task, instance, verdict))
                    settled.hints.add(namespace_topic(task.namespace_id))
                settled.hints.add(instance_topic(ending.instance_id))
        await transitions.write_tasks(connection, changes)
        await transitions.create_instances(connection, followers)
        return settled

    def _judge(
        self,
        ending: Ending,
        outcome: Outcome,
        task: LockedTask,
        instance: LiveInstance,
        version: JobVersion,
    ) -> Verdict:
        lost = ending.status is InstanceStatus.LOST
        # What was cancelled before it ran has spent nothing either.
        spent = not lost and (ending.status is not InstanceStatus.CANCELLED or instance.status == _RUNNING)
        attempts, losses = task.attempts + spent, task.losses + lost
        change = TaskChange(
            id=task.id,
            status=_TASK_STATUS_AFTER.get(ending.status, TaskStatus.FAILED),
            reason=ending.reason,
            seq=task.seq,
            attempts=attempts,
            losses=losses,
            exit_code=ending.exit_code,
            due_at=task.due_at,
        )
        if _ended_by_deadline(task) and ending.status is not InstanceStatus.SUCCEEDED:
            return Verdict(replace(change, status=TaskStatus.FAILED, reason=DEADLINE), None)
        if instance.cancel_requested and ending.status is not InstanceStatus.SUCCEEDED:
            # Somebody wanted it to end: however it ended, it is not tried again.
            return Verdict(replace(change, status=TaskStatus.CANCELLED, reason="cancelled"), None)
        decision = decide(
            version.retry,
            outcome,
            attempts_spent=attempts,
            losses=losses,
            random=self._rng.random(),
        )
        retry_at = (
            clip_retry(self._clock.now() + decision.delay, task.deadline_at)
            if isinstance(decision, Retry)
            else decision
        )
        match retry_at:
            case datetime():
                change = replace(change, status=TaskStatus.WAITING_RETRY, seq=task.seq + 1, due_at=retry_at)
                return Verdict(change, retry_at)
            case GiveUp(reason=(GiveUpReason.QUARANTINED | GiveUpReason.DEADLINE) as reason):
                return Verdict(replace(change, reason=reason.value), None)
            case GiveUp():
                return Verdict(change, None)


def _ended_by_deadline(task: LockedTask) -> bool:
    """Whether the rescuer has marked it; an agent may call any end "deadline", but not make it overdue."""
    return task.overdue and task.reason == DEADLINE


def _classified(ending: Ending, task: LockedTask, version: JobVersion) -> Ending:
    """An exit code the job calls a skip is no failure; a cancel says when the deadline asked for it."""
    if ending.status is InstanceStatus.FAILED and ending.exit_code in version.skip_exit_codes:
        return replace(ending, status=InstanceStatus.SKIPPED)
    if ending.status is InstanceStatus.CANCELLED and _ended_by_deadline(task):
        return replace(ending, reason=DEADLINE)
    return ending


async def _outcome(
    connection: Connection, ending: Ending, instance: LiveInstance, version: JobVersion
) -> Outcome:
    """What rules are asked about; the log is read only for those that look at it."""
    reads = version.reads_output and ending.status in RETRYABLE
    return Outcome(
        status=ending.status,
        exit_code=ending.exit_code,
        signal=ending.signal,
        output_tail=await output_tail(connection, instance.id, instance.claim_no) if reads else "",
    )


def _next_instance(task: LockedTask, instance: LiveInstance, verdict: Verdict) -> NewInstance:
    change = verdict.change
    return NewInstance(
        id=ids.instance_of(task.id, change.seq),
        task_id=task.id,
        namespace_id=task.namespace_id,
        placement_id=instance.placement_id,
        job_id=task.job_id,
        job_version=task.job_version,
        schedule_id=task.schedule_id,
        seq=change.seq,
        # Losses spend nothing: the next one is the same attempt again.
        attempt=change.attempts + 1,
        priority=task.priority,
        fire_at=task.fire_at,
        due_at=change.due_at,
        lease_ms=instance.lease_ms,
    )
