"""The instances assigned to an agent."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.placement import Resources


class ArtifactSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """An artifact of a given task, or of a job's newest succeeded task that has it."""

    path: str
    job: str | None = None
    task: UUID | None = None


class InputFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file created before the process starts, with the given content or from an artifact."""

    path: str
    content: str | None = None
    source: ArtifactSource | None = None


class SecretPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """The destination of a secret: an environment variable, a header, or otherwise the executor, by name."""

    name: str
    env: str | None = None
    header: str | None = None
    # Text before the value.
    prefix: str = ""


class RunSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The work to execute, with rendered templates; exactly one of command, script and executor is set."""

    command: list[str] | None = None
    script: str | None = None
    shell: str = "bash"
    env: dict[str, str] = {}
    # None: a new directory per instance.
    workdir: str | None = None
    # User of the host; None: the user of the agent.
    user: str | None = None
    # Another executor than `command`, and its options, which only that executor interprets.
    executor: str | None = None
    options: dict[str, Any] = {}
    # Files below the work directory: created before the start, and stored at the end (paths and patterns).
    inputs: list[InputFile] = []
    outputs: list[str] = []
    # Required secrets; the agent that holds the claim fetches their values and never stores them.
    secrets: list[SecretPlace] = []


class Probe(msgspec.Struct, frozen=True, omit_defaults=True):
    """A periodic check of a daemon; one of command, url and port is set."""

    command: list[str] | None = None
    url: str | None = None
    host: str | None = None
    port: int | None = None
    interval_ms: int = 10_000
    timeout_ms: int = 1_000
    # This many consecutive results of one kind change the state.
    failure_threshold: int = 3
    success_threshold: int = 1
    initial_delay_ms: int = 0


class Assignment(msgspec.Struct, frozen=True):
    """A claimed instance with everything that the agent needs to run it."""

    instance_id: UUID
    task_id: UUID
    token: UUID
    # Number of claims of this instance; each claim has a separate log.
    claim_no: int
    namespace: str
    job: str
    job_version: int
    attempt: int
    fire_at: int
    due_at: int
    # The start must be committed before this time; then the reservation expires.
    reserved_until: int
    run: RunSpec
    timeout_ms: int | None
    kill_grace_ms: int
    lease_ms: int
    on_lost: str = "kill"
    traceparent: str | None = None
    # Resources reserved on the agent while the claim is held.
    resources: Resources = Resources()
    # Labels of the job; the agent repeats them in its polls.
    labels: dict[str, str] = {}
    # For daemons: the slot and the probes. A failed liveness probe ends the process with the reason
    # `liveness_failed`; heartbeats report the readiness.
    slot: int | None = None
    liveness: Probe | None = None
    readiness: Probe | None = None
