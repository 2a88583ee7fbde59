"""From a fire to a task and its first instance."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.durations import parse_duration
from hetuflow_core.schedule import Overlap, ScheduleSpec
from hetuflow_core.states import HeldReason
from hetuflow_server.jobs.leases_store import lease_of_work
from hetuflow_server.queue.rows import NewInstance, NewTask


class FiringSchedule(Protocol):
    """A stored schedule, and of its job what its tasks take over."""

    @property
    def id(self) -> UUID: ...
    @property
    def namespace_id(self) -> int: ...
    @property
    def job_id(self) -> UUID: ...
    @property
    def job_version(self) -> int: ...
    @property
    def placement_id(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def lease(self) -> str | None: ...  # None: that of the namespace
    @property
    def namespace_lease_ms(self) -> int: ...
    @property
    def is_flow(self) -> bool: ...
    @property
    def deadline(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class TaskTemplate:
    """What all fires of a schedule in one version of its job have in common."""

    namespace_id: int
    job_id: UUID
    job_version: int
    placement_id: int
    schedule_id: UUID
    # JSON.
    params: str
    priority: int
    # None: a flow, whose run begins when it is due.
    lease_ms: int | None
    deadline: timedelta | None
    created_by: str | None = None
    # Whether its fires have to wait for each other.
    waits: bool = False
    # Its tasks count for the backfill then, and not for the overlap of its schedule.
    backfill_id: UUID | None = None

    @property
    def _held_reason(self) -> HeldReason | None:
        if self.waits:
            return HeldReason.OVERLAP
        return HeldReason.FLOW if self.lease_ms is None else None

    def new_work(
        self, task_id: UUID, fire_at: datetime, due_at: datetime, key: str | None = None
    ) -> tuple[NewTask, NewInstance]:
        """`key` is the scope of the job's concurrency key for this task."""
        task = NewTask(
            id=task_id,
            namespace_id=self.namespace_id,
            job_id=self.job_id,
            job_version=self.job_version,
            schedule_id=self.schedule_id,
            retry_of=None,
            params=self.params,
            priority=self.priority,
            fire_at=fire_at,
            due_at=due_at,
            deadline_at=later(due_at, self.deadline),
            traceparent=None,
            created_by=self.created_by,
            backfill_id=self.backfill_id,
        )
        instance = NewInstance(
            id=ids.instance_of(task_id, 1),
            task_id=task_id,
            namespace_id=self.namespace_id,
            placement_id=self.placement_id,
            job_id=self.job_id,
            job_version=self.job_version,
            schedule_id=None if self.backfill_id else self.schedule_id,
            backfill_id=self.backfill_id,
            seq=1,
            attempt=1,
            priority=self.priority,
            fire_at=fire_at,
            due_at=due_at,
            deadline_at=task.deadline_at,
            lease_ms=self.lease_ms,
            concurrency_key=key,
            held_reason=self._held_reason,
        )
        return task, instance


def mould_of(row: FiringSchedule, spec: ScheduleSpec, params: str) -> TaskTemplate:
    """What the fires of a stored schedule have in common; `params` are JSON, all of them together."""
    return TaskTemplate(
        namespace_id=row.namespace_id,
        job_id=row.job_id,
        job_version=row.job_version,
        placement_id=row.placement_id,
        schedule_id=row.id,
        params=params,
        priority=row.priority if spec.priority is None else spec.priority,
        lease_ms=_lease_ms(row),
        deadline=None if row.deadline is None else _duration(row.deadline),
        waits=spec.overlap is not Overlap.ALLOW,
    )


def _lease_ms(row: FiringSchedule) -> int | None:
    if row.is_flow:
        return None
    return row.namespace_lease_ms if row.lease is None else lease_of_work(_duration(row.lease))


@lru_cache(maxsize=1_024)
def _duration(text: str) -> timedelta:
    return parse_duration(text)


def later(at: datetime, duration: timedelta | None) -> datetime | None:
    """Return the instant so much later; None without a duration."""
    if duration is None:
        return None
    try:
        return at + duration
    except OverflowError:
        return None  # beyond the last year there is
