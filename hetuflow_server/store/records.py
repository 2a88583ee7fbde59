"""What the verbs of `transitions.py` take and give, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from hetuflow_core.states import InstanceStatus, TaskStatus


@dataclass(frozen=True, slots=True)
class NewInstance:
    id: UUID
    task_id: UUID
    namespace_id: int
    placement_id: int
    job_id: UUID
    job_version: int
    schedule_id: UUID | None
    seq: int
    attempt: int
    priority: int
    fire_at: datetime
    due_at: datetime
    lease_ms: int


@dataclass(frozen=True, slots=True)
class NewTask:
    id: UUID
    namespace_id: int
    job_id: UUID
    job_version: int
    schedule_id: UUID | None
    retry_of: UUID | None
    params: str
    priority: int
    fire_at: datetime
    due_at: datetime
    # When it fails unless it has ended; None: never.
    deadline_at: datetime | None
    traceparent: str | None
    created_by: str | None


@dataclass(frozen=True, slots=True)
class Claimed:
    id: UUID
    task_id: UUID
    namespace_id: int
    job_id: UUID
    job_version: int
    attempt: int
    token: UUID
    claim_no: int
    fire_at: datetime
    due_at: datetime
    reserved_until: datetime
    lease_ms: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How an instance ended, told by whoever holds its token, or decided by the rescuer (no token)."""

    instance_id: UUID
    token: UUID | None
    status: InstanceStatus
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TaskChange:
    id: UUID
    status: TaskStatus
    reason: str | None
    seq: int
    attempts: int
    losses: int
    exit_code: int | None
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Claimable:
    """A row locked for whoever it will be dealt to."""

    id: UUID
    namespace_id: int
    placement_id: int
    priority: int
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Grant:
    """A row dealt to one request of one agent."""

    instance_id: UUID
    token: UUID
    agent_id: UUID
    session_id: UUID
    request_id: UUID
