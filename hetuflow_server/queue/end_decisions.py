"""Deciding what the end of an instance means for its task: the task ends with a status, or is retried."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from msgspec import structs

from hetuflow_core import ids
from hetuflow_core.retry import (
    GiveUp,
    GiveUpReason,
    InstanceOutcome,
    Retry,
    RetryChange,
    clip_retry,
    decide,
)
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.states import InstanceStatus, TaskStatus
from hetuflow_server.jobs.versions import JobVersion
from hetuflow_server.queue.live_transitions import EVICTED, TERMINATED
from hetuflow_server.queue.rows import Ending, NewInstance, TaskChange
from hetuflow_server.queue.tasks_store import LiveInstance, LockedTask

NO_CHANGE = RetryChange()
# The reason of a task that failed at its deadline, and of the instances that were ended for it.
DEADLINE = GiveUpReason.DEADLINE.value
_RUNNING = InstanceStatus.RUNNING
# Reasons that end an attempt and not its task, and the status that the attempt gets.
_ATTEMPT_STATUS = {TERMINATED: InstanceStatus.FAILED, EVICTED: InstanceStatus.LOST}
_TASK_STATUS_AFTER = {
    InstanceStatus.SUCCEEDED: TaskStatus.SUCCEEDED,
    InstanceStatus.SKIPPED: TaskStatus.SKIPPED,
    InstanceStatus.CANCELLED: TaskStatus.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class EndDecision:
    change: TaskChange
    retry_at: datetime | None
    # Placement requirements that the next attempt changes.
    retry_change: RetryChange = NO_CHANGE


class EndDecisions:
    def __init__(self, clock: Clock, rng: random.Random, cancel_reasons: Collection[str]) -> None:
        self._clock = clock
        self._rng = rng
        # A task that the engine cancelled keeps its reason; a task that a person cancelled is "cancelled".
        self._cancel_reasons = cancel_reasons

    def decide(
        self,
        ending: Ending,
        outcome: InstanceOutcome,
        task: LockedTask,
        instance: LiveInstance,
        version: JobVersion,
    ) -> EndDecision:
        lost = ending.status is InstanceStatus.LOST
        # An instance that was cancelled before it ran has not spent an attempt either.
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
            output=ending.output,
        )
        if _ended_by_deadline(task) and ending.status is not InstanceStatus.SUCCEEDED:
            return EndDecision(replace(change, status=TaskStatus.FAILED, reason=DEADLINE), None)
        if _cancelled(task, instance) and ending.status is not InstanceStatus.SUCCEEDED:
            # A cancelled task is not retried, however its attempt ended.
            reason = task.reason if task.reason in self._cancel_reasons else "cancelled"
            return EndDecision(replace(change, status=TaskStatus.CANCELLED, reason=reason), None)
        if instance.slot is not None:
            # After an instance of a daemon comes another task, not another attempt.
            return EndDecision(change, None)
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
                return EndDecision(
                    change, retry_at, decision.change if isinstance(decision, Retry) else NO_CHANGE
                )
            case GiveUp(reason=(GiveUpReason.QUARANTINED | GiveUpReason.DEADLINE) as reason):
                return EndDecision(replace(change, reason=reason.value), None)
            case GiveUp():
                return EndDecision(change, None)


def effective(endings: Sequence[Ending], live: Mapping[UUID, LiveInstance]) -> Iterable[Ending]:
    """Return one end per live instance: the first one with the token of its claim, or without a token.

    A repeated report within one transaction would be counted twice. A report with another token would count
    as if its sender held the claim.
    """
    first: dict[UUID, Ending] = {}
    for ending in endings:
        instance = live.get(ending.instance_id)
        if instance is not None and ending.token in {None, instance.token}:
            first.setdefault(ending.instance_id, ending)
    return first.values()


def classified(ending: Ending, instance: LiveInstance, task: LockedTask, version: JobVersion) -> Ending:
    """Return the end with its effective status and reason, which may differ from the agent's report.

    A terminated attempt has failed and an evicted one is lost. An exit code that the job lists as a skip is
    not a failure. A cancel that the deadline requested has the deadline as its reason.
    """
    status = _ATTEMPT_STATUS.get(task.reason or "") if instance.cancel_requested else None
    if status is not None and ending.status in {InstanceStatus.CANCELLED, InstanceStatus.FAILED}:
        return structs.replace(ending, status=status, reason=task.reason)
    if ending.status is InstanceStatus.FAILED and ending.exit_code in version.skip_exit_codes:
        return structs.replace(ending, status=InstanceStatus.SKIPPED)
    if ending.status is InstanceStatus.CANCELLED and _ended_by_deadline(task):
        return structs.replace(ending, reason=DEADLINE)
    return ending


def next_instance(
    task: LockedTask, instance: LiveInstance, change: TaskChange, placement_id: int
) -> NewInstance:
    """Return the next attempt at a task that is retried."""
    return NewInstance(
        id=ids.instance_of(task.id, change.seq),
        task_id=task.id,
        namespace_id=task.namespace_id,
        placement_id=placement_id,
        job_id=task.job_id,
        job_version=task.job_version,
        # The tasks of a backfill do not count for the overlap of their schedule.
        schedule_id=None if task.backfill_id else task.schedule_id,
        backfill_id=task.backfill_id,
        seq=change.seq,
        # A loss spends no attempt: the next instance has the same attempt number.
        attempt=change.attempts + 1,
        priority=task.priority,
        fire_at=task.fire_at,
        due_at=change.due_at,
        deadline_at=task.deadline_at,
        lease_ms=instance.lease_ms,
        concurrency_key=instance.concurrency_key,
        target_agent_id=instance.target_agent_id,
        flow_run_id=task.flow_run_id,
    )


def _ended_by_deadline(task: LockedTask) -> bool:
    """Whether the rescuer marked the task; an agent may report "deadline" for a task that is not overdue."""
    return task.overdue and task.reason == DEADLINE


def _cancelled(task: LockedTask, instance: LiveInstance) -> bool:
    """Whether the whole task is cancelled, and not only this attempt."""
    return instance.cancel_requested and task.reason not in _ATTEMPT_STATUS
