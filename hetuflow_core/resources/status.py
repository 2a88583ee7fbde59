"""`GET /system/status`: what is where right now, what fails, what is late and what comes."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from hetuflow_core.resources.agents import AgentSummary


class NamespaceQueue(msgspec.Struct, frozen=True, kw_only=True):
    """What waits and runs in one namespace."""

    namespace: str
    held: int = 0
    pending: int = 0
    reserved: int = 0
    running: int = 0
    # Some of these are only as far as they were counted.
    capped: bool = False
    # Since the oldest claimable instance became due; None: nothing is due.
    oldest_due_at: datetime | None = None
    oldest_due_seconds: float | None = None
    # Claimable instances that have been due for longer than the threshold.
    late: int = 0


class AgentCounts(msgspec.Struct, frozen=True):
    """Agents by what they are: each is counted once."""

    total: int = 0
    # They take work and were heard of.
    online: int = 0
    # They would take work, and were not heard of for too long or have no session.
    unreachable: int = 0
    draining: int = 0
    # They wait to be approved.
    pending: int = 0
    offline: int = 0
    # Of those that are online.
    slots: int = 0
    free_slots: int = 0


class FailingJob(msgspec.Struct, frozen=True):
    """A job whose newest ended task has failed."""

    namespace: str
    job: str
    job_id: UUID
    task_id: UUID
    failed_at: datetime
    exit_code: int | None
    reason: str | None


class LateTask(msgspec.Struct, frozen=True):
    """A task that has been due for longer than the threshold, and that nobody has claimed."""

    namespace: str
    job: str
    task_id: UUID
    due_at: datetime
    late_seconds: float


class NextFire(msgspec.Struct, frozen=True):
    """A fire that comes next."""

    namespace: str
    job: str
    schedule: str
    schedule_id: UUID
    at: datetime
    # None: its task is not made yet.
    task_id: UUID | None


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Everything is of the namespaces whoever asks may see; the longest lists are cut."""

    held: int
    pending: int
    reserved: int
    running: int
    # Some of these are only as far as they were counted.
    capped: bool = False
    # Since the oldest claimable instance became due.
    oldest_due_seconds: float | None
    failed_last_hour: int
    # At most 500, by name; all of them are in `agent_counts`.
    agents: list[AgentSummary]
    agent_counts: AgentCounts = AgentCounts()
    # Those with anything in their queue, the one that waits longest first; at most 50.
    namespaces: list[NamespaceQueue] = []
    # The newest first.
    failing: list[FailingJob] = []
    # The oldest first.
    late: list[LateTask] = []
    # Schedules whose fires should have been made before now: is there a leader?
    late_schedules: int = 0
    # The soonest first.
    coming: list[NextFire] = []
