"""Agents and commands to them as the REST API shows and takes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


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
    # {cpu_percent, load, memory_total, memory_available, disk_free}, as its host said last.
    host_usage: dict[str, Any] | None = None


class Agent(AgentSummary, frozen=True):
    namespaces: list[str] = []
    taints: list[str] = []
    pools: list[str] = []
    executors: list[str] = []
    # Users of its host that tasks may run as, beside its own.
    run_as: list[str] = []
    # What tasks that ask for some may take together: {cpu, memory in bytes, gpu}.
    resources: dict[str, float] | None = None
    # How tasks are held to what they ask for: {memory: cgroup or rlimit, cpu: cgroup, affinity or null}.
    limit_means: dict[str, str | None] | None = None
    created_at: datetime | None = None
    registered_at: datetime | None = None
    # False once it was kicked: it has to be started again.
    has_session: bool = True


class HostSample(msgspec.Struct, frozen=True):
    """How busy an agent's host was within a minute, or several from that one on."""

    at: datetime
    # Means, of all CPUs together.
    cpu_percent: float
    load: float
    memory_total: int
    # The least there was, in bytes; the disk's is that of the agent's data folder.
    memory_available: int
    disk_free: int


class HeldInstance(msgspec.Struct, frozen=True):
    """What an agent has reserved or runs."""

    id: UUID
    task_id: UUID
    namespace: str
    job: str
    status: str
    due_at: datetime
    started_at: datetime | None


class AgentDetail(Agent, frozen=True):
    # What it holds now, the oldest first; at most 500.
    instances: list[HeldInstance] = []


class KickRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # Give its running work to others at once, although its processes may still be running.
    lose_running: bool = False


class AgentCommand(msgspec.Struct, frozen=True):
    """Something an agent was told to do, and what became of it."""

    id: UUID
    agent_id: UUID
    agent: str
    kind: str
    payload: dict[str, Any]
    state: str
    attempts: int
    created_by: str | None
    created_at: datetime
    next_attempt_at: datetime
    expires_at: datetime
    delivered_at: datetime | None
    ended_at: datetime | None
    # What the agent answered.
    result: dict[str, Any] | None
    # Why it could not be done, or why it was given up.
    error: str | None
    resent_as: UUID | None
