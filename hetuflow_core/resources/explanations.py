"""`GET /tasks/{id}/explain`: why a task is where it is, and what would let it go on."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class Obstacle(msgspec.Struct, frozen=True):
    """Something that stands in the way."""

    # For programs: not_due, retry_delay, limit, concurrency, key, placement, slots, queue, overlap, …
    code: str
    # A sentence.
    message: str
    # What would take it away; None: only time, or the end of something else.
    remedy: str | None = None
    # Some of the tasks that have what it waits for.
    tasks: list[UUID] = []


class AgentVerdict(msgspec.Struct, frozen=True):
    """What the claim says of one agent."""

    agent: str
    # The first condition that fails, as the claim calls it; None: it could take the task now.
    code: str | None
    # The rest of a sentence that begins with the agent's name.
    message: str


class RefusalCount(msgspec.Struct, frozen=True):
    """How many agents fail the same condition first."""

    code: str
    agents: int
    # One of the sentences, beginning with the agent's name.
    example: str
    remedy: str | None = None


class AgentsLooked(msgspec.Struct, frozen=True):
    # Agents that serve the namespace; the others are no candidates.
    serving: int
    # Those of them that could take the task right now.
    able: int
    # Why the others cannot, the most frequent first.
    refusals: list[RefusalCount]
    # Some of them by name: those that could, then at least one for each refusal.
    sample: list[AgentVerdict]
    # Agents that serve other namespaces only; for whoever may see all agents.
    elsewhere: int | None = None


class QueuePlace(msgspec.Struct, frozen=True):
    """What goes first among what is due in the namespace; other namespaces take turns with it by weight."""

    # Of higher priority.
    higher: int
    # Of the same priority and requirements, and due earlier.
    earlier: int
    # One of the two is only as far as it was counted.
    capped: bool


class HeldClaim(msgspec.Struct, frozen=True):
    """Who has it."""

    instance_id: UUID
    agent: str | None
    reserved_at: datetime | None
    # When the reservation is given to others unless it is started.
    reserved_until: datetime | None
    started_at: datetime | None
    # When the instance is given up unless the agent is heard of.
    lease_until: datetime | None
    agent_last_seen_at: datetime | None
    agent_reachable: bool
    cancel_requested: bool
    progress: dict[str, Any] | None = None


class AttemptEnd(msgspec.Struct, frozen=True):
    """How the last attempt that ended did so."""

    instance_id: UUID
    attempt: int
    status: str
    agent: str | None
    started_at: datetime | None
    finished_at: datetime
    exit_code: int | None
    signal: int | None
    reason: str | None
    message: str | None


class RetryDecision(msgspec.Struct, frozen=True):
    """Whether that is followed by another attempt."""

    retried: bool
    # retry; or why not: final, not_retried, ruled_out, attempts_spent, quarantined, deadline, cancelled.
    code: str
    message: str


class WaitingNode(msgspec.Struct, frozen=True):
    """A node of a flow that is under way or waits for something."""

    node: str
    # approval, until, event; None: its tasks are under way.
    reason: str | None
    message: str
    wake_at: datetime | None
    started: int
    ended: int
    total: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    task_id: UUID
    namespace: str
    job: str
    status: str
    reason: str | None
    due_at: datetime
    deadline_at: datetime | None
    # When this was so.
    looked_at: datetime
    # The first obstacle's code; else claimable, reserved, running, flow or the status it ended with.
    code: str
    # One sentence.
    summary: str
    # What stands in the way, the first to be removed first.
    obstacles: list[Obstacle] = []
    place: QueuePlace | None = None
    agents: AgentsLooked | None = None
    claim: HeldClaim | None = None
    last_end: AttemptEnd | None = None
    retry: RetryDecision | None = None
    # Of a flow whose run has begun; at most 20.
    nodes: list[WaitingNode] = []
