"""Daemons as the REST API shows them, for the server that writes it and the client that reads it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class DaemonSlot(msgspec.Struct, frozen=True):
    """One place of a daemon: what lives in it, and how the one before ended."""

    slot: int
    # starting, running, ready, backing_off, stopping, stopped or failed.
    state: str
    # Who has it, or is offered it first; of a daemon with one per agent, whose it is.
    agent: str | None
    task_id: UUID | None
    instance_id: UUID | None
    job_version: int | None
    # The number of the newest instance; how many of them followed one that had ended.
    starts: int
    restarts: int
    # How often in a row it has ended too soon.
    crashes: int
    # When it may start, of one that has not.
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
    # How many instances there should be, are running, are ready, and are of the newest version.
    wanted: int
    running: int
    ready: int
    updated: int
    restarts: int
    # `daemon` as in the job's file, with defaults filled in.
    spec: dict[str, Any]


class DaemonDetail(Daemon, frozen=True):
    # Without those nobody wants any more.
    slots: list[DaemonSlot] = []


class DaemonRun(msgspec.Struct, frozen=True):
    """One instance that a daemon has, or had."""

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
    """`POST /daemons/{id}/restart`: one slot, or all of them, a few at a time."""

    slot: int | None = None
