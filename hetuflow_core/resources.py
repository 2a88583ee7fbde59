"""What the REST API answers with, for the server that writes it and the client that reads it.

A field has the same name in the job file, here and in the database. Times are RFC 3339 with an offset.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

import msgspec

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]
    next_cursor: str | None
    total: int
    # True when there are more than the server counts.
    total_capped: bool


class Job(msgspec.Struct, frozen=True):
    id: UUID
    namespace: str
    name: str
    enabled: bool
    version: int
    labels: dict[str, str]
    created_at: datetime
    updated_at: datetime
    # The job as in its file, with defaults filled in.
    spec: dict[str, Any]
    # Whose files define it; None: nobody's.
    owner: str | None = None


class JobVersionSummary(msgspec.Struct, frozen=True):
    """What a job was at one time; its schedules are not part of a version."""

    version: int
    created_at: datetime
    created_by: str | None
    spec: dict[str, Any]


class TaskInstance(msgspec.Struct, frozen=True):
    """One attempt of a task."""

    id: UUID
    task_id: UUID
    seq: int
    attempt: int
    status: str
    held_reason: str | None
    priority: int
    due_at: datetime
    agent: str | None
    # The only agent that may take it.
    target_agent: str | None
    cancel_requested: bool
    reserved_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    signal: int | None
    reason: str | None
    message: str | None
    # What it wrote to $HETUFLOW_OUTPUT, or returned.
    output: dict[str, Any] | None = None
    # {cpu_seconds, memory_peak, read_bytes, written_bytes}, as far as they are known.
    usage: dict[str, Any] | None = None
    # {percent, message} of one that runs and says so.
    progress: dict[str, Any] | None = None


class ListedInstance(TaskInstance, frozen=True, kw_only=True):
    """One attempt among those of others."""

    namespace: str
    job: str


class TaskChange(msgspec.Struct, frozen=True):
    """What became of a task, as it is told to who follows its namespace."""

    task_id: UUID
    # Its newest attempt.
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
    """One planned execution. `status` may be `running`: it is shown from the live instance."""

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
    # Of its last attempt.
    output: dict[str, Any] | None = None
    # The flow run it belongs to, the node it is a task of, and its place among the node's items (-1: alone).
    flow_run_id: UUID | None = None
    flow_node: str | None = None
    map_index: int | None = None


class LateResult(msgspec.Struct, frozen=True):
    """What an agent said of an attempt that had ended without it, or was another's: it changed nothing."""

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


class Artifact(msgspec.Struct, frozen=True):
    """A file that an attempt has left behind."""

    path: str
    size: int
    sha256: str
    created_at: datetime


class ArtifactList(msgspec.Struct, frozen=True):
    items: list[Artifact]


class RunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # On top of the job's own params.
    params: dict[str, Any] = {}
    # The job's own if not given.
    priority: int | None = None
    # Now if not given.
    run_at: datetime | None = None
    idempotency_key: str | None = None
    # The name of the only agent that may take it; whichever suits if not given.
    agent: str | None = None


class RunsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: list[RunRequest]


class TaskList(msgspec.Struct, frozen=True):
    items: list[Task]


class Limit(msgspec.Struct, frozen=True):
    """A limit with a name, such as tool:claude."""

    namespace: str
    name: str
    max: int
    # Instances that count against it now; more than `max` for a while after that was lowered.
    in_use: int


class LimitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    max: int
    namespace: str = "default"


class LimitChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max: int


class ServerInfo(msgspec.Struct, frozen=True):
    """`GET /system/info`."""

    version: str
    schema_revision: str
    server_time: datetime


class Server(msgspec.Struct, frozen=True):
    """One process life of a server; after a restart it is another one."""

    id: UUID
    hostname: str
    url: str | None
    version: str
    weight: int
    # live, dead (not heard of for too long) or stopped.
    status: str
    leader: bool
    # How many it looks after.
    namespaces: int
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None


class Leader(msgspec.Struct, frozen=True):
    """`GET /system/leader`."""

    # None: nobody leads just now.
    server: Server | None
    # Grows with every change of leader.
    epoch: int
    since: datetime | None
    renewed_at: datetime | None
    expires_at: datetime | None


class Namespace(msgspec.Struct, frozen=True):
    name: str
    weight: int
    # A duration; None: 5 minutes. For work whose job says none of its own.
    lease: str | None
    labels: dict[str, str]
    created_at: datetime
    updated_at: datetime
    # The one that looks after it; None until it is bound.
    server_id: UUID | None
    hostname: str | None
    bound_at: datetime | None
    pinned: bool
    # The hostname it stays on while a server there lives.
    pinned_to: str | None
    # Claims per second of late, by all servers' agents.
    load: float


class NamespaceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    weight: int = 100
    labels: dict[str, str] = {}
    lease: str | None = None


class NamespaceChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # What is not given stays as it is.
    weight: int | None = None
    labels: dict[str, str] | None = None
    # None takes it away.
    lease: str | msgspec.UnsetType | None = msgspec.UNSET


class BindRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # The id or hostname of a server that lives; without one a pin is taken away (`pinned` false).
    server: str | None = None
    pinned: bool = True


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
