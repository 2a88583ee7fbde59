"""What agents and servers say to each other.

Every request and every answer is one `Envelope` as JSON. Times are epoch milliseconds, durations are
milliseconds. An agent shows its token in the Authorization header; `session_id` is one process life of it.

    POST /api/v1/gateway/register    Register   → Registered       once per session, first
    POST /api/v1/gateway/poll        Poll       → Polled           waits up to wait_ms for work or cancels
    POST /api/v1/gateway/heartbeat   Heartbeat  → HeartbeatKept    renews what is held, says what to stop
    POST /api/v1/gateway/reports     Reports    → ReportsTaken     starts, finishes, releases; each answered;
                                                                   may bring a poll that does not wait
    POST /api/v1/gateway/logs        LogChunks  → LogChunksTaken   appends by offset; each answered
    POST /api/v1/gateway/artifacts/store   StoreArtifact → ArtifactStored    appends to a file by offset
    POST /api/v1/gateway/artifacts/fetch   FetchArtifact → ArtifactFetched   a piece of an earlier task's file
    POST /api/v1/gateway/secrets     FetchSecrets → SecretsFetched  values for a claim that uses secrets
    POST /api/v1/gateway/acknowledgements  Acknowledgements → AcknowledgementsTaken   what became of commands

A request of a session that is no longer the agent's answers 409 with code `agent.session_replaced`: that
process exits and never registers again by itself.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from hetuflow_core.agent_commands import CommandKind
from hetuflow_core.placement import Resources, RunningJob
from hetuflow_core.states import AgentStatus, InstanceStatus

P = TypeVar("P")

GATEWAY_PATH = "/api/v1/gateway"


class MessageKind(StrEnum):
    REGISTER = "register"
    REGISTERED = "registered"
    POLL = "poll"
    POLLED = "polled"
    HEARTBEAT = "heartbeat"
    HEARTBEAT_KEPT = "heartbeat_kept"
    REPORTS = "reports"
    REPORTS_TAKEN = "reports_taken"
    LOG_CHUNKS = "log_chunks"
    LOG_CHUNKS_TAKEN = "log_chunks_taken"
    STORE_ARTIFACT = "store_artifact"
    ARTIFACT_STORED = "artifact_stored"
    FETCH_ARTIFACT = "fetch_artifact"
    ARTIFACT_FETCHED = "artifact_fetched"
    FETCH_SECRETS = "fetch_secrets"
    SECRETS_FETCHED = "secrets_fetched"
    ACKNOWLEDGEMENTS = "acknowledgements"
    ACKNOWLEDGEMENTS_TAKEN = "acknowledgements_taken"


class Metadata(msgspec.Struct, frozen=True, omit_defaults=True):
    traceparent: str | None = None


class Envelope(msgspec.Struct, Generic[P], frozen=True):
    message_id: UUID
    timestamp: int
    kind: MessageKind
    payload: P
    metadata: Metadata = Metadata()


class Held(msgspec.Struct, frozen=True):
    """One claim an agent holds, named by what proves it."""

    instance_id: UUID
    token: UUID


class LimitMeans(msgspec.Struct, frozen=True):
    """How an agent holds tasks to the resources they ask for; None where it does not."""

    # `cgroup`: by the kernel, as a whole; `rlimit`: each process, and the whole by looking.
    memory: str | None = None
    # `cgroup` or nothing.
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


class Poll(msgspec.Struct, frozen=True):
    session_id: UUID
    # The same again when the answer was lost, with `repeated`: the server gives the same assignments again.
    request_id: UUID
    # How many assignments it can begin, now or within a moment.
    free_slots: int
    wait_ms: int
    # How far ahead of their due time the agent takes assignments; it starts them by its own timer.
    prefetch_ms: int = 2_000
    # What is left of its resources; all of them if it does not say.
    free_resources: Resources | None = None
    # The jobs it has something of under way, each once: work may want not to be beside them.
    running: list[RunningJob] = []
    # Sent before, and no answer came: whatever server gets it looks for what this request was given then.
    repeated: bool = False


class ArtifactSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """An artifact of an earlier task: of one task, or of the newest of a job that succeeded and has it."""

    path: str
    job: str | None = None
    task: UUID | None = None


class InputFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file to be there before the work begins: with this content, or what a task has left behind."""

    path: str
    content: str | None = None
    source: ArtifactSource | None = None


class SecretPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a secret's value goes: a variable, a header, or else by its name to whoever runs it."""

    name: str
    env: str | None = None
    header: str | None = None
    # Stands before the value.
    prefix: str = ""


class RunSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What to execute, with all templates rendered; exactly one of command, script and executor is set."""

    command: list[str] | None = None
    script: str | None = None
    shell: str = "bash"
    env: dict[str, str] = {}
    # None: a fresh directory per instance.
    workdir: str | None = None
    # Of the host; None: the agent's own.
    user: str | None = None
    # Another executor than `command`, and what it is told; the executor itself knows what that means.
    executor: str | None = None
    options: dict[str, Any] = {}
    # Files below the directory it runs in: written before, and kept afterwards (paths and patterns).
    inputs: list[InputFile] = []
    outputs: list[str] = []
    # Which secrets it needs; their values are fetched by whoever holds the claim, and written nowhere.
    secrets: list[SecretPlace] = []


class Probe(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question to ask a daemon again and again; one of command, url and port is set."""

    command: list[str] | None = None
    url: str | None = None
    host: str | None = None
    port: int | None = None
    interval_ms: int = 10_000
    timeout_ms: int = 1_000
    # So many answers of one kind in a row make a verdict.
    failure_threshold: int = 3
    success_threshold: int = 1
    initial_delay_ms: int = 0


class Assignment(msgspec.Struct, frozen=True):
    """One claimed instance: everything the agent needs to run it without asking again."""

    instance_id: UUID
    task_id: UUID
    token: UUID
    # Counts claims of this instance; logs of different claims are different logs.
    claim_no: int
    namespace: str
    job: str
    job_version: int
    attempt: int
    fire_at: int
    due_at: int
    # Start must be committed before this; afterwards the reservation is somebody else's.
    reserved_until: int
    run: RunSpec
    timeout_ms: int | None
    kill_grace_ms: int
    lease_ms: int
    on_lost: str = "kill"
    traceparent: str | None = None
    # What it takes of the agent's resources while it is there; zero takes nothing.
    resources: Resources = Resources()
    # Of the job; the agent says them again in its polls.
    labels: dict[str, str] = {}
    # Of a daemon: its slot, and what it is asked while it runs. Who is not alive is ended, with reason
    # `liveness_failed`; whether it is ready is told by heartbeat.
    slot: int | None = None
    liveness: Probe | None = None
    readiness: Probe | None = None


class Cancel(msgspec.Struct, frozen=True):
    """End this claim: kill its process, or do not start it, and finish it as cancelled."""

    instance_id: UUID
    token: UUID


class Command(msgspec.Struct, frozen=True):
    """Something else to do. Delivered again until it is acknowledged, and done once: `id` tells."""

    id: UUID
    kind: CommandKind
    payload: dict[str, Any] = {}


class Polled(msgspec.Struct, frozen=True):
    server_time: int
    assignments: list[Assignment] = []
    cancels: list[Cancel] = []
    commands: list[Command] = []


class Progress(msgspec.Struct, frozen=True):
    """How far a task says it has come, of 100."""

    instance_id: UUID
    token: UUID
    percent: float
    message: str = ""


class Readiness(msgspec.Struct, frozen=True):
    """What a daemon answers to its readiness probe."""

    instance_id: UUID
    token: UUID
    ready: bool


class HostUsage(msgspec.Struct, frozen=True):
    """How busy an agent's host is; sizes in bytes."""

    cpu_percent: float
    # Of the last minute.
    load: float
    memory_total: int
    memory_available: int
    # Where the agent keeps its data.
    disk_free: int


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True):
    session_id: UUID
    held: list[Held]
    # What has changed since the last heartbeat that was answered.
    progress: list[Progress] = []
    host: HostUsage | None = None
    # Likewise; sent at once when there is some.
    readiness: list[Readiness] = []


class HeartbeatKept(msgspec.Struct, frozen=True):
    """A held id that is in neither list is no longer this agent's: stop it, its result is not wanted."""

    server_time: int
    kept: list[UUID] = []
    cancels: list[Cancel] = []
    commands: list[Command] = []


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Commits a reservation. Only an answer of `ok` allows the process to be spawned."""

    instance_id: UUID
    token: UUID


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an attempt took of its host; memory in bytes."""

    cpu_seconds: float | None = None
    memory_peak: int | None = None


class Finish(msgspec.Struct, frozen=True, tag="finish", omit_defaults=True):
    instance_id: UUID
    token: UUID
    status: InstanceStatus
    started_at: int | None = None
    finished_at: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    # The kernel killed something of it for want of memory.
    oom: bool = False
    # Why, when the status alone does not say: executor_error, spawn_failed, agent_shutdown, …
    reason: str | None = None
    message: str | None = None
    # What it wrote to $HETUFLOW_OUTPUT, or returned.
    output: dict[str, Any] | None = None
    usage: Usage | None = None


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Gives a claim back whose work has not begun, its start committed or not; nothing is spent."""

    instance_id: UUID
    token: UUID


class Reports(msgspec.Struct, frozen=True, omit_defaults=True):
    session_id: UUID
    reports: list[Start | Finish | Release]
    # Asks for work in the same breath; answered at once, whatever its wait_ms.
    poll: Poll | None = None


class ReportOutcome(StrEnum):
    OK = "ok"
    # Not this agent's (any more): do not start it, or drop the result; it was kept as a late report.
    STALE = "stale"
    # A start that must not happen because somebody cancelled first; the instance has ended as cancelled.
    CANCELLED = "cancelled"


class ReportResult(msgspec.Struct, frozen=True):
    instance_id: UUID
    outcome: ReportOutcome


class ReportsTaken(msgspec.Struct, frozen=True):
    server_time: int
    # In the order of the reports.
    results: list[ReportResult]
    polled: Polled | None = None


class LogChunk(msgspec.Struct, frozen=True):
    instance_id: UUID
    token: UUID
    stream: str
    # Of the first byte of `data` before compression.
    offset: int
    byte_length: int
    # zstd; as base64 in JSON.
    data: bytes


class LogChunks(msgspec.Struct, frozen=True):
    session_id: UUID
    chunks: list[LogChunk]


class LogOutcome(StrEnum):
    APPENDED = "appended"
    # `length` is where the server is: send again from there (a repeated chunk is skipped that way).
    OFFSET = "offset"
    # Not this agent's log, or over the cap: send nothing more of it.
    REFUSED = "refused"


class LogResult(msgspec.Struct, frozen=True):
    instance_id: UUID
    stream: str
    outcome: LogOutcome
    length: int


class LogChunksTaken(msgspec.Struct, frozen=True):
    server_time: int
    # In the order of the chunks.
    results: list[LogResult]


class Acknowledgement(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a command; with an `error` it was understood and could not be done."""

    command_id: UUID
    result: dict[str, Any] = {}
    error: str | None = None


class Acknowledgements(msgspec.Struct, frozen=True):
    session_id: UUID
    acknowledgements: list[Acknowledgement]


class AcknowledgementsTaken(msgspec.Struct, frozen=True):
    """All of them are known now, also those that were before."""

    server_time: int


class StoreArtifact(msgspec.Struct, frozen=True):
    """A piece of a file that an instance has left behind; `size` and `sha256` are those of the whole file."""

    session_id: UUID
    instance_id: UUID
    token: UUID
    path: str
    size: int
    sha256: str
    offset: int
    # As base64 in JSON.
    data: bytes


class ArtifactOutcome(StrEnum):
    STORED = "stored"
    # `length` is where the server is: send again from there.
    OFFSET = "offset"
    # Not this agent's instance: send nothing more of it.
    REFUSED = "refused"
    # The file, or all files of the instance together, are more than the server keeps.
    TOO_LARGE = "too_large"


class ArtifactStored(msgspec.Struct, frozen=True):
    server_time: int
    outcome: ArtifactOutcome
    length: int


class FetchArtifact(msgspec.Struct, frozen=True, omit_defaults=True):
    """Asks, for an instance the agent holds, for a piece of an artifact of the same namespace."""

    session_id: UUID
    instance_id: UUID
    token: UUID
    path: str
    offset: int = 0
    job: str | None = None
    task: UUID | None = None
    # As the first answer said: the next piece is of the same file, whatever has succeeded meanwhile.
    source_instance_id: UUID | None = None


class ArtifactFetched(msgspec.Struct, frozen=True):
    server_time: int
    source_instance_id: UUID
    size: int
    sha256: str
    data: bytes


class FetchSecrets(msgspec.Struct, frozen=True, omit_defaults=True):
    """Asks for the values of the secrets that the job of a claim this agent holds uses."""

    session_id: UUID
    instance_id: UUID
    token: UUID
    # Only these versions: of what the process was started with, to know what to mask in its log.
    versions: dict[str, int] = {}


class DeliveredSecret(msgspec.Struct, frozen=True):
    name: str
    version: int
    value: str

    def __repr__(self) -> str:
        return f"DeliveredSecret(name={self.name!r}, version={self.version})"


class SecretsFetched(msgspec.Struct, frozen=True):
    server_time: int
    secrets: list[DeliveredSecret]
