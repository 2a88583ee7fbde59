"""Tasks, task instances and requests to run a job in the REST API."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec


class TaskInstance(msgspec.Struct, frozen=True):
    """An attempt at a task."""

    id: UUID
    task_id: UUID
    seq: int
    attempt: int
    status: str
    held_reason: str | None
    priority: int
    due_at: datetime
    agent: str | None
    # The only agent that may run the instance.
    target_agent: str | None
    cancel_requested: bool
    reserved_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    signal: int | None
    reason: str | None
    message: str | None
    # The content of $HETUFLOW_OUTPUT, or the return value.
    output: dict[str, Any] | None = None
    # {cpu_seconds, memory_peak, read_bytes, written_bytes}, as far as known.
    usage: dict[str, Any] | None = None
    # {percent, message} of a running instance that reports progress.
    progress: dict[str, Any] | None = None


class ListedInstance(TaskInstance, frozen=True, kw_only=True):
    """An attempt in a list over several tasks."""

    namespace: str
    job: str


class TaskChange(msgspec.Struct, frozen=True):
    """A status change of a task, for clients that follow its namespace."""

    task_id: UUID
    # The newest attempt.
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
    """A planned execution of a job. The status `running` is derived from the live instance."""

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
    # Output of the last attempt.
    output: dict[str, Any] | None = None
    # The flow run, the node, and the index among the node's mapped items (-1: not mapped).
    flow_run_id: UUID | None = None
    flow_node: str | None = None
    map_index: int | None = None


class LateResult(msgspec.Struct, frozen=True):
    """A result for an attempt that had already ended or was not the agent's; it changed nothing."""

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
    # Merged over the job's parameters.
    params: dict[str, Any] = {}
    # The job's priority if omitted.
    priority: int | None = None
    # Now if omitted.
    run_at: datetime | None = None
    idempotency_key: str | None = None
    # Name of the only agent that may run the task; any suitable agent if omitted.
    agent: str | None = None


class RunsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: list[RunRequest]


class TaskList(msgspec.Struct, frozen=True):
    items: list[Task]
