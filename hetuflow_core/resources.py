"""What the REST API answers with, for the server that writes it and the client that reads it.

A field has the same name in the job file, here and in the database. Times are RFC 3339 with an offset.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]
    next_cursor: str | None
    total: int
    # True when there are more than the server counts.
    total_capped: bool


class Job(msgspec.Struct, frozen=True):
    id: UUID
    namespace: str
    name: str
    enabled: bool
    version: int
    labels: dict[str, str]
    created_at: datetime
    updated_at: datetime
    # The job as in its file, with defaults filled in.
    spec: dict[str, Any]


class TaskInstance(msgspec.Struct, frozen=True):
    """One attempt of a task."""

    id: UUID
    task_id: UUID
    seq: int
    attempt: int
    status: str
    held_reason: str | None
    priority: int
    due_at: datetime
    agent: str | None
    cancel_requested: bool
    reserved_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    signal: int | None
    reason: str | None
    message: str | None


class Task(msgspec.Struct, frozen=True):
    """One planned execution. `status` may be `running`: it is shown from the live instance."""

    id: UUID
    namespace: str
    job: str
    job_id: UUID
    job_version: int
    status: str
    reason: str | None
    params: dict[str, Any]
    priority: int
    fire_at: datetime
    due_at: datetime
    attempts: int
    losses: int
    exit_code: int | None
    retry_of: UUID | None
    created_by: str | None
    created_at: datetime
    finished_at: datetime | None


class TaskDetail(Task, frozen=True):
    # Oldest first.
    instances: list[TaskInstance] = []


class RunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # On top of the job's own params.
    params: dict[str, Any] = {}
    # The job's own if not given.
    priority: int | None = None
    # Now if not given.
    run_at: datetime | None = None
    idempotency_key: str | None = None


class RunsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: list[RunRequest]


class TaskList(msgspec.Struct, frozen=True):
    items: list[Task]


class ApplyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Documents as in job files; applied all together or not at all."""

    documents: list[dict[str, Any]]


class ApplyAction(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


class AppliedDocument(msgspec.Struct, frozen=True):
    kind: str
    namespace: str | None
    name: str
    action: ApplyAction
    # Of a job.
    version: int | None = None
    # Paths of what differs from before.
    changes: list[str] = []


class ApplyResult(msgspec.Struct, frozen=True):
    dry_run: bool
    items: list[AppliedDocument]


class ServerInfo(msgspec.Struct, frozen=True):
    """`GET /system/info`."""

    version: str
    schema_revision: str
    server_time: datetime


class AgentSummary(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    status: str
    # Seen within the last heartbeats.
    reachable: bool
    slots: int
    # Reserved and running instances.
    in_use: int
    labels: dict[str, str]
    version: str | None
    last_seen_at: datetime | None


class QueueSummary(msgspec.Struct, frozen=True):
    """`GET /system/status`: what is where, right now."""

    held: int
    pending: int
    reserved: int
    running: int
    # Since the oldest claimable instance became due.
    oldest_due_seconds: float | None
    failed_last_hour: int
    agents: list[AgentSummary]
