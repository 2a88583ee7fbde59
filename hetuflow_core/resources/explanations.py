"""`GET /tasks/{id}/explain`: why a task is in its state, and how it can continue."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class Obstacle(msgspec.Struct, frozen=True):
    """A reason why the task does not continue."""

    # Machine-readable: not_due, retry_delay, limit, concurrency, key, placement, slots, queue, overlap, …
    code: str
    # A sentence.
    message: str
    # An action that helps; None: wait.
    remedy: str | None = None
    # Some of the tasks that this task waits for.
    tasks: list[UUID] = []


class AgentVerdict(msgspec.Struct, frozen=True):
    """Whether an agent could claim the task."""

    agent: str
    # The first condition that fails; None: the agent could claim the task now.
    code: str | None
    # A sentence without its subject, the agent's name.
    message: str


class RefusalCount(msgspec.Struct, frozen=True):
    """The number of agents that fail the same condition first."""

    code: str
    agents: int
    # The sentence of one of these agents.
    example: str
    remedy: str | None = None


class AgentsLooked(msgspec.Struct, frozen=True):
    # Agents that serve the namespace; other agents are not candidates.
    serving: int
    # Serving agents that could claim the task now.
    able: int
    # Why the other agents cannot, most frequent first.
    refusals: list[RefusalCount]
    # Some agents by name: able agents first, then at least one per refusal.
    sample: list[AgentVerdict]
    # Agents that serve other namespaces only; set if the caller may see all agents.
    elsewhere: int | None = None


class QueuePlace(msgspec.Struct, frozen=True):
    """Due instances of the namespace that come first; namespaces share agents by weight."""

    # Instances of higher priority.
    higher: int
    # Instances of the same priority and requirements that were due earlier.
    earlier: int
    # A count stopped at the limit of the server.
    capped: bool


class HeldClaim(msgspec.Struct, frozen=True):
    """The claim of an agent."""

    instance_id: UUID
    agent: str | None
    reserved_at: datetime | None
    # When the reservation expires unless the instance starts.
    reserved_until: datetime | None
    started_at: datetime | None
    # When the instance counts as lost unless the agent sends a heartbeat.
    lease_until: datetime | None
    agent_last_seen_at: datetime | None
    agent_reachable: bool
    cancel_requested: bool
    progress: dict[str, Any] | None = None


class AttemptEnd(msgspec.Struct, frozen=True):
    """The end of the last finished attempt."""

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
    """Whether another attempt follows."""

    retried: bool
    # retry; or why not: final, not_retried, ruled_out, attempts_spent, quarantined, deadline, cancelled.
    code: str
    message: str


class WaitingNode(msgspec.Struct, frozen=True):
    """A node of a flow that runs or waits."""

    node: str
    # approval, until, event; None: its tasks are unfinished.
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
    # Time of this explanation.
    looked_at: datetime
    # The first obstacle's code; otherwise claimable, reserved, running, flow or the final status.
    code: str
    # One sentence.
    summary: str
    # Why the task does not continue, in the order in which the reasons must be removed.
    obstacles: list[Obstacle] = []
    place: QueuePlace | None = None
    agents: AgentsLooked | None = None
    claim: HeldClaim | None = None
    last_end: AttemptEnd | None = None
    retry: RetryDecision | None = None
    # Nodes of a started flow run; at most 20.
    nodes: list[WaitingNode] = []
