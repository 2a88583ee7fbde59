"""What an agent is given to do."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.placement import Resources


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
