"""What became of claims."""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.messages.polls import Poll, Polled
from hetuflow_core.states import InstanceStatus


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Commits a reservation. Only an answer of `ok` allows the process to be spawned."""

    instance_id: UUID
    token: UUID


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an attempt took of its host, as far as that is known; sizes in bytes."""

    cpu_seconds: float | None = None
    # Of the largest of its processes, or of all of them together where that was watched.
    memory_peak: int | None = None
    # From and to disks.
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
