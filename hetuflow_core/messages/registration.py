"""Registration of an agent session, including the claims it still holds."""

from __future__ import annotations

from uuid import UUID

import msgspec

from hetuflow_core.placement import Resources
from hetuflow_core.states import AgentStatus


class Held(msgspec.Struct, frozen=True):
    """A claim that an agent holds, with its claim token."""

    instance_id: UUID
    token: UUID


class LimitMeans(msgspec.Struct, frozen=True):
    """How an agent enforces the resources that tasks request; None: not enforced."""

    # `cgroup`: the kernel limits the task; `rlimit`: it limits each process, and the agent checks the sum.
    memory: str | None = None
    # `cgroup`: a share of all CPUs; `affinity`: a number of whole CPUs.
    cpu: str | None = None


class Register(msgspec.Struct, frozen=True):
    name: str
    session_id: UUID
    version: str
    namespaces: list[str]
    slots: int
    labels: dict[str, str] = {}
    # Names of the available executors.
    executors: list[str] = []
    # Users of the host that tasks may run as.
    run_as: list[str] = []
    # `key=value:NoSchedule`: repels tasks that do not tolerate it.
    taints: list[str] = []
    # Pools that the agent serves; empty: the default pool.
    pools: list[str] = []
    # Total resources for tasks that request some.
    resources: Resources = Resources()
    # None from agents that do not report it.
    limit_means: LimitMeans | None = None
    # Claims that an earlier session started and this session still supervises; adopted by token.
    running: list[Held] = []


class Registered(msgspec.Struct, frozen=True):
    agent_id: UUID
    server_time: int
    heartbeat_every: int
    poll_wait: int
    # The claims of `running` that still belong to this agent. The agent must stop all others.
    adopted: list[UUID] = []
    # `pending` and `draining` agents receive no work; a command reports the change.
    status: str = AgentStatus.ONLINE
