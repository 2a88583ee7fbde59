"""Reports about claims: start, finish and release."""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.messages.polls import Poll, Polled
from hetuflow_core.states import InstanceStatus


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Commits a reservation. The agent may spawn the process only if the outcome is `ok`."""

    instance_id: UUID
    token: UUID


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resource usage of an attempt, as far as it is known; sizes in bytes."""

    cpu_seconds: float | None = None
    # Of all processes together where that is measured, otherwise of the largest process.
    memory_peak: int | None = None
    # Bytes read from and written to disks.
    read_bytes: int | None = None
    written_bytes: int | None = None


class Finish(msgspec.Struct, frozen=True, tag="finish", omit_defaults=True):
    instance_id: UUID
    token: UUID
    status: InstanceStatus
    started_at: int | None = None
    finished_at: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    # The kernel killed a process of the attempt because it ran out of memory.
    oom: bool = False
    # The reason, if the status is not specific: executor_error, spawn_failed, agent_shutdown, …
    reason: str | None = None
    message: str | None = None
    # The content of $HETUFLOW_OUTPUT, or the return value.
    output: dict[str, Any] | None = None
    usage: Usage | None = None


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Returns a claim whose process has not started, even if its start is committed; no attempt is spent."""

    instance_id: UUID
    token: UUID


class Reports(msgspec.Struct, frozen=True, omit_defaults=True):
    session_id: UUID
    reports: list[Start | Finish | Release]
    # A poll in the same request; answered immediately, regardless of its wait_ms.
    poll: Poll | None = None


class ReportOutcome(StrEnum):
    OK = "ok"
    # The claim is not this agent's: do not start it, or drop the result; the server stored a late report.
    STALE = "stale"
    # The instance was cancelled before its start and has ended; do not start it.
    CANCELLED = "cancelled"


class ReportResult(msgspec.Struct, frozen=True):
    instance_id: UUID
    outcome: ReportOutcome


class ReportsTaken(msgspec.Struct, frozen=True):
    server_time: int
    # In the order of the reports.
    results: list[ReportResult]
    polled: Polled | None = None
