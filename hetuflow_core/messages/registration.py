"""An agent makes itself known, and names what it holds."""

from __future__ import annotations

from uuid import UUID

import msgspec

from hetuflow_core.placement import Resources
from hetuflow_core.states import AgentStatus


class Held(msgspec.Struct, frozen=True):
    """One claim an agent holds, named by what proves it."""

    instance_id: UUID
    token: UUID


class LimitMeans(msgspec.Struct, frozen=True):
    """How an agent holds tasks to the resources they ask for; None where it does not."""

    # `cgroup`: by the kernel, as a whole; `rlimit`: each process, and the whole by looking.
    memory: str | None = None
    # `cgroup`: a share of all CPUs; `affinity`: so many of them, whole ones; or nothing.
    cpu: str | None = None


class Register(msgspec.Struct, frozen=True):
    name: str
    session_id: UUID
    version: str
    namespaces: list[str]
    slots: int
    labels: dict[str, str] = {}
    # Names of the executors this agent has.
    executors: list[str] = []
    # Users of the host that it may run tasks as.
    run_as: list[str] = []
    # `key=value:NoSchedule`: keeps away work that does not tolerate it.
    taints: list[str] = []
    # The pools it serves; none is the default pool.
    pools: list[str] = []
    # What it has in all for tasks that ask for resources.
    resources: Resources = Resources()
    # Nothing from agents that do not say.
    limit_means: LimitMeans | None = None
    # What an earlier session of this agent started and this one still watches: adopted by token.
    running: list[Held] = []


class Registered(msgspec.Struct, frozen=True):
    agent_id: UUID
    server_time: int
    heartbeat_every: int
    poll_wait: int
    # Of `running`: those that are still this agent's. The others are no longer wanted and must be stopped.
    adopted: list[UUID] = []
    # `pending` and `draining` agents are given no work; a command tells when that changes.
    status: str = AgentStatus.ONLINE
