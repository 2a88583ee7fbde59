"""`GET /system/status`: queues, agents, failing jobs, late tasks and the next fires."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from hetuflow_core.resources.agents import AgentSummary


class NamespaceQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of live instances in one namespace."""

    namespace: str
    held: int = 0
    pending: int = 0
    reserved: int = 0
    running: int = 0
    # Some counts stopped at the limit of the server.
    capped: bool = False
    # The oldest claimable instance; None: no instance is due.
    oldest_due_at: datetime | None = None
    oldest_due_seconds: float | None = None
    # Claimable instances that have been due for longer than the threshold.
    late: int = 0


class AgentCounts(msgspec.Struct, frozen=True):
    """Agents by state; each agent is counted once."""

    total: int = 0
    # Approved, reachable and not draining.
    online: int = 0
    # Online by status, but without a recent heartbeat or without a session.
    unreachable: int = 0
    draining: int = 0
    # Waiting for approval.
    pending: int = 0
    offline: int = 0
    # Slots of the online agents.
    slots: int = 0
    free_slots: int = 0


class FailingJob(msgspec.Struct, frozen=True):
    """A job whose newest finished task failed."""

    namespace: str
    job: str
    job_id: UUID
    task_id: UUID
    failed_at: datetime
    exit_code: int | None
    reason: str | None


class LateTask(msgspec.Struct, frozen=True):
    """An unclaimed task that has been due for longer than the threshold."""

    namespace: str
    job: str
    task_id: UUID
    due_at: datetime
    late_seconds: float


class NextFire(msgspec.Struct, frozen=True):
    """An upcoming fire."""

    namespace: str
    job: str
    schedule: str
    schedule_id: UUID
    at: datetime
    # None: the task is not created yet.
    task_id: UUID | None


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The state of all namespaces that the caller may see; long lists are truncated."""

    held: int
    pending: int
    reserved: int
    running: int
    # Some counts stopped at the limit of the server.
    capped: bool = False
    # Seconds since the oldest claimable instance became due.
    oldest_due_seconds: float | None
    failed_last_hour: int
    # At most 500, by name; `agent_counts` counts all agents.
    agents: list[AgentSummary]
    agent_counts: AgentCounts = AgentCounts()
    # Namespaces with live instances, longest wait first; at most 50.
    namespaces: list[NamespaceQueue] = []
    # Newest first.
    failing: list[FailingJob] = []
    # Oldest first.
    late: list[LateTask] = []
    # Schedules whose fires are overdue; a value above 0 may mean that no server leads.
    late_schedules: int = 0
    # Soonest first.
    coming: list[NextFire] = []
