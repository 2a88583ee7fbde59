"""From a fire to a task and its first instance."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.states import HeldReason
from hetuflow_server.store.records import NewInstance, NewTask


@dataclass(frozen=True, slots=True)
class Mould:
    """What all fires of a schedule in one version of its job have in common."""

    namespace_id: int
    job_id: UUID
    job_version: int
    placement_id: int
    schedule_id: UUID
    # JSON.
    params: str
    priority: int
    lease_ms: int
    deadline: timedelta | None
    created_by: str | None = None
    # Whether its fires have to wait for each other.
    waits: bool = False
    # Its tasks count for the backfill then, and not for the overlap of its schedule.
    backfill_id: UUID | None = None

    def cast(
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
            deadline_at=_later(due_at, self.deadline),
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
            lease_ms=self.lease_ms,
            concurrency_key=key,
            held_reason=HeldReason.OVERLAP if self.waits else None,
        )
        return task, instance


def _later(at: datetime, duration: timedelta | None) -> datetime | None:
    if duration is None:
        return None
    try:
        return at + duration
    except OverflowError:
        return None  # beyond the last year there is
