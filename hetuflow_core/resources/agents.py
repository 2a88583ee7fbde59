"""Agents and agent commands in the REST API."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class AgentSummary(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    status: str
    # The server received a recent heartbeat.
    reachable: bool
    slots: int
    # Reserved and running instances.
    in_use: int
    labels: dict[str, str]
    version: str | None
    last_seen_at: datetime | None
    # {cpu_percent, load, memory_total, memory_available, disk_free} of the last heartbeat.
    host_usage: dict[str, Any] | None = None


class Agent(AgentSummary, frozen=True):
    namespaces: list[str] = []
    taints: list[str] = []
    pools: list[str] = []
    executors: list[str] = []
    # Users of the host that tasks may run as, in addition to the agent's user.
    run_as: list[str] = []
    # Total resources for tasks that request some: {cpu, memory in bytes, gpu}.
    resources: dict[str, float] | None = None
    # How requested resources are enforced: {memory: cgroup or rlimit, cpu: cgroup, affinity or null}.
    limit_means: dict[str, str | None] | None = None
    created_at: datetime | None = None
    registered_at: datetime | None = None
    # False after a kick: the agent must be restarted.
    has_session: bool = True


class HostSample(msgspec.Struct, frozen=True):
    """The load of an agent's host during one or several minutes, starting at `at`."""

    at: datetime
    # Averages over all CPUs.
    cpu_percent: float
    load: float
    memory_total: int
    # Minimum, in bytes; disk space is that of the agent's data folder.
    memory_available: int
    disk_free: int


class HeldInstance(msgspec.Struct, frozen=True):
    """An instance that an agent has reserved or runs."""

    id: UUID
    task_id: UUID
    namespace: str
    job: str
    status: str
    due_at: datetime
    started_at: datetime | None


class AgentDetail(Agent, frozen=True):
    # Reserved and running instances, oldest first; at most 500.
    instances: list[HeldInstance] = []


class KickRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # Reassign its running instances immediately, although its processes may still be running.
    lose_running: bool = False


class AgentCommand(msgspec.Struct, frozen=True):
    """A command to an agent and its result."""

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
    # The result that the agent reported.
    result: dict[str, Any] | None
    # Why the command failed or expired.
    error: str | None
    resent_as: UUID | None
