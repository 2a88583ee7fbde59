"""Tasks and their instances as the REST API shows them, and requests to run a job."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec


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
    # The only agent that may take it.
    target_agent: str | None
    cancel_requested: bool
    reserved_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    signal: int | None
    reason: str | None
    message: str | None
    # What it wrote to $HETUFLOW_OUTPUT, or returned.
    output: dict[str, Any] | None = None
    # {cpu_seconds, memory_peak, read_bytes, written_bytes}, as far as they are known.
    usage: dict[str, Any] | None = None
    # {percent, message} of one that runs and says so.
    progress: dict[str, Any] | None = None


class ListedInstance(TaskInstance, frozen=True, kw_only=True):
    """One attempt among those of others."""

    namespace: str
    job: str


class TaskChange(msgspec.Struct, frozen=True):
    """What became of a task, as it is told to who follows its namespace."""

    task_id: UUID
    # Its newest attempt.
    instance_id: UUID
    job: str
    status: str
    reason: str | None
    at: datetime
    fire_at: datetime
    finished_at: datetime | None


class PriorityChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    priority: Annotated[int, msgspec.Meta(ge=0, le=1_000)]


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
    # Of its last attempt.
    output: dict[str, Any] | None = None
    # The flow run it belongs to, the node it is a task of, and its place among the node's items (-1: alone).
    flow_run_id: UUID | None = None
    flow_node: str | None = None
    map_index: int | None = None


class LateResult(msgspec.Struct, frozen=True):
    """What an agent said of an attempt that had ended without it, or was another's: it changed nothing."""

    instance_id: UUID
    agent: str | None
    reported_at: datetime
    status: str
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    output: dict[str, Any] | None = None


class TaskDetail(Task, frozen=True):
    # Oldest first.
    instances: list[TaskInstance] = []
    # The first twenty.
    late_results: list[LateResult] = []


class RunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # On top of the job's own params.
    params: dict[str, Any] = {}
    # The job's own if not given.
    priority: int | None = None
    # Now if not given.
    run_at: datetime | None = None
    idempotency_key: str | None = None
    # The name of the only agent that may take it; whichever suits if not given.
    agent: str | None = None


class RunsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: list[RunRequest]


class TaskList(msgspec.Struct, frozen=True):
    items: list[Task]
