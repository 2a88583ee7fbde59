"""What the verbs of `transitions.py` take and give, row by row.

What the hot path makes one of per row is a Struct: it takes a third of the time a dataclass does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from hetuflow_core.states import HeldReason, InstanceStatus, TaskStatus
from hetuflow_server.postgres.batches import Int, Json, Milliseconds, SmallInt


@dataclass(frozen=True, slots=True)
class NewInstance:
    id: UUID
    task_id: UUID
    namespace_id: Int
    placement_id: int
    job_id: UUID
    job_version: Int
    schedule_id: UUID | None
    seq: Int
    attempt: Int
    priority: SmallInt
    fire_at: datetime
    due_at: datetime
    # Of its task.
    deadline_at: datetime | None
    # None: no agent runs it, a flow's run stands behind it. OF_NAMESPACE: see `jobs/leases_store.py`.
    lease_ms: Int | None
    # The scope of its `concurrency.key`; while that is taken it is held.
    concurrency_key: str | None = None
    # The only agent that may take it.
    target_agent_id: UUID | None = None
    # Held from the beginning, and why.
    held_reason: HeldReason | None = None
    # The backfill that goes on when it ends.
    backfill_id: UUID | None = None
    # Of a daemon.
    slot: Int | None = None
    # The run it is a node of.
    flow_run_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class NewTask:
    id: UUID
    namespace_id: Int
    job_id: UUID
    job_version: Int
    schedule_id: UUID | None
    retry_of: UUID | None
    params: Json
    priority: SmallInt
    fire_at: datetime
    due_at: datetime
    # When it fails unless it has ended; None: never.
    deadline_at: datetime | None
    traceparent: str | None
    created_by: str | None
    backfill_id: UUID | None = None
    # The node it is a task of, and the place among the node's items.
    flow_run_id: UUID | None = None
    flow_node: str | None = None
    map_index: Int | None = None
    # JSON
    flow_context: str | None = None


class Claimed(msgspec.Struct, frozen=True):
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
    placement_id: int
    # Of a daemon.
    slot: int | None
    # Of its task.
    params: dict[str, Any] | None
    traceparent: str | None
    flow_node: str | None = None
    # What the templates of a node's own work see.
    flow_context: dict[str, Any] | None = None


class Ending(msgspec.Struct, frozen=True):
    """How an instance ended, told by whoever holds its token, or decided by the rescuer (no token)."""

    instance_id: UUID
    token: UUID | None
    status: InstanceStatus
    exit_code: Int | None = None
    signal: SmallInt | None = None
    reason: str | None = None
    message: str | None = None
    started_at: Milliseconds | None = None
    finished_at: Milliseconds | None = None
    # JSON
    output: str | None = None
    usage: str | None = None
    # For the rules of a retry; the history does not keep it.
    oom: bool = False


@dataclass(frozen=True, slots=True)
class TaskChange:
    id: UUID
    status: TaskStatus
    reason: str | None
    seq: Int
    attempts: Int
    losses: Int
    exit_code: Int | None
    due_at: datetime
    # JSON
    output: str | None = None


class Claimable(msgspec.Struct, frozen=True):
    """A pending instance that a claim has locked."""

    id: UUID
    task_id: UUID
    namespace_id: int
    placement_id: int
    priority: int
    due_at: datetime
    concurrency_key: str | None
    target_agent_id: UUID | None
    job_id: UUID
    job_version: int
    attempt: int
    fire_at: datetime
    lease_ms: int
    # Of a daemon.
    slot: int | None
    # How often it was claimed before.
    claim_no: int = 0


class Freed(msgspec.Struct, frozen=True):
    """A row that has ended or was released; what it had taken of limits is to be given back."""

    id: UUID
    namespace_id: int
    placement_id: int
    concurrency_key: str | None
    # Whether it was reserved or running; what only waited had taken nothing.
    claimed: bool


class Ended(Freed, frozen=True):
    """An instance that has just left the queue, and what may follow it."""

    task_id: UUID
    job_id: UUID
    job_version: int
    schedule_id: UUID | None
    backfill_id: UUID | None
    # Why it was held; None when it was not.
    held_reason: str | None
    # The run it was a node of.
    flow_run_id: UUID | None
    # Whether schedules of its namespace fire after other jobs.
    followed: bool
    # Of a daemon.
    slot: int | None


class EndedGroup(NamedTuple):
    """Instances of one class whose end entails nothing but what that gives back."""

    namespace_id: int
    placement_id: int
    number: int


class Succeeded(NamedTuple):
    ended: set[UUID]
    # Those that are not summed up.
    each: list[Ended]
    sums: list[EndedGroup]


class Recipient(NamedTuple):
    """The poll request of an agent, for which instances are reserved."""

    agent_id: UUID
    session_id: UUID
    request_id: UUID


@dataclass(frozen=True, slots=True)
class ProgressNote:
    """How far a claimed instance says it has come."""

    instance_id: UUID
    token: UUID
    # JSON
    progress: str
