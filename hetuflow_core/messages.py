"""What agents and servers say to each other.

Every request and every answer is one `Envelope` as JSON. Times are epoch milliseconds, durations are
milliseconds. An agent shows its token in the Authorization header; `session_id` is one process life of it.

    POST /api/v1/gateway/register    Register   → Registered       once per session, first
    POST /api/v1/gateway/poll        Poll       → Polled           waits up to wait_ms for work or cancels
    POST /api/v1/gateway/heartbeat   Heartbeat  → HeartbeatKept    renews what is held, says what to stop
    POST /api/v1/gateway/reports     Reports    → ReportsTaken     starts, finishes, releases; each answered
    POST /api/v1/gateway/logs        LogChunks  → LogChunksTaken   appends by offset; each answered

A request of a session that is no longer the agent's answers 409 with code `agent.session_replaced`: that
process exits and never registers again by itself.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

from hetuflow_core.states import InstanceStatus

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


class Register(msgspec.Struct, frozen=True):
    name: str
    session_id: UUID
    version: str
    namespaces: list[str]
    slots: int
    labels: dict[str, str] = {}
    # Names of the executors this agent has.
    executors: list[str] = []
    # `key=value:NoSchedule`: keeps away work that does not tolerate it.
    taints: list[str] = []
    # The pools it serves; none is the default pool.
    pools: list[str] = []
    # What an earlier session of this agent started and this one still watches: adopted by token.
    running: list[Held] = []


class Registered(msgspec.Struct, frozen=True):
    agent_id: UUID
    server_time: int
    heartbeat_every: int
    poll_wait: int
    # Of `running`: those that are still this agent's. The others are no longer wanted and must be stopped.
    adopted: list[UUID] = []


class Poll(msgspec.Struct, frozen=True):
    session_id: UUID
    # Repeated unchanged when the answer was lost: the server gives the same assignments again.
    request_id: UUID
    free_slots: int
    wait_ms: int
    # How far ahead of their due time the agent takes assignments; it starts them by its own timer.
    prefetch_ms: int = 2_000


class RunSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What to execute, with all templates rendered; exactly one of command and script is set."""

    command: list[str] | None = None
    script: str | None = None
    shell: str = "bash"
    env: dict[str, str] = {}
    # None: a fresh directory per instance.
    workdir: str | None = None


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


class Cancel(msgspec.Struct, frozen=True):
    """End this claim: kill its process, or do not start it, and finish it as cancelled."""

    instance_id: UUID
    token: UUID


class Polled(msgspec.Struct, frozen=True):
    server_time: int
    assignments: list[Assignment] = []
    cancels: list[Cancel] = []


class Heartbeat(msgspec.Struct, frozen=True):
    session_id: UUID
    held: list[Held]


class HeartbeatKept(msgspec.Struct, frozen=True):
    """A held id that is in neither list is no longer this agent's: stop it, its result is not wanted."""

    server_time: int
    kept: list[UUID] = []
    cancels: list[Cancel] = []


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Commits a reservation. Only an answer of `ok` allows the process to be spawned."""

    instance_id: UUID
    token: UUID


class Finish(msgspec.Struct, frozen=True, tag="finish", omit_defaults=True):
    instance_id: UUID
    token: UUID
    status: InstanceStatus
    started_at: int | None = None
    finished_at: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    # Why, when the status alone does not say: executor_error, spawn_failed, agent_shutdown, …
    reason: str | None = None
    message: str | None = None


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Gives a reservation back unstarted; nothing is spent."""

    instance_id: UUID
    token: UUID


class Reports(msgspec.Struct, frozen=True):
    session_id: UUID
    reports: list[Start | Finish | Release]


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
