"""Daemons in the REST API."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class DaemonSlot(msgspec.Struct, frozen=True):
    """A slot of a daemon: its current instance and the end of the previous one."""

    slot: int
    # starting, running, ready, backing_off, stopping, stopped or failed.
    state: str
    # The agent that runs the slot or is preferred for it; with one slot per agent, the agent of the slot.
    agent: str | None
    task_id: UUID | None
    instance_id: UUID | None
    job_version: int | None
    # The number of the newest instance; how many instances were restarts.
    starts: int
    restarts: int
    # Consecutive ends that came too soon after the start.
    crashes: int
    # When an instance that has not started may start.
    due_at: datetime | None
    started_at: datetime | None
    ready_since: datetime | None
    last_status: str | None
    last_reason: str | None
    last_exit_code: int | None
    last_ended_at: datetime | None


class Daemon(msgspec.Struct, frozen=True):
    """A schedule that keeps instances of its job running; its id is the schedule's."""

    id: UUID
    namespace: str
    job: str
    job_id: UUID
    name: str
    # stopped, stopping, ready, updating or degraded.
    state: str
    enabled: bool
    job_enabled: bool
    job_version: int
    # Numbers of instances: desired, running, ready, and of the newest version.
    wanted: int
    running: int
    ready: int
    updated: int
    restarts: int
    # `daemon` as in the job file, with defaults.
    spec: dict[str, Any]


class DaemonDetail(Daemon, frozen=True):
    # Without slots that are no longer needed.
    slots: list[DaemonSlot] = []


class DaemonRun(msgspec.Struct, frozen=True):
    """A current or former instance of a daemon."""

    task_id: UUID
    instance_id: UUID
    slot: int
    start: int
    job_version: int
    agent: str | None
    status: str
    reason: str | None
    message: str | None
    exit_code: int | None
    signal: int | None
    due_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class ScaleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /daemons/{id}/scale`."""

    replicas: int


class RestartRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /daemons/{id}/restart`: one slot, or all slots as a rolling restart."""

    slot: int | None = None
