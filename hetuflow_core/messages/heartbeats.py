"""Heartbeats renew claims and report progress, readiness and host usage."""

from __future__ import annotations

from uuid import UUID

import msgspec

from hetuflow_core.messages.polls import Cancel, Command
from hetuflow_core.messages.registration import Held


class Progress(msgspec.Struct, frozen=True):
    """The progress that a task reports, in percent."""

    instance_id: UUID
    token: UUID
    percent: float
    message: str = ""


class Readiness(msgspec.Struct, frozen=True):
    """The result of a daemon's readiness probe."""

    instance_id: UUID
    token: UUID
    ready: bool


class HostUsage(msgspec.Struct, frozen=True):
    """The load of an agent's host; sizes in bytes."""

    cpu_percent: float
    # Load average of the last minute.
    load: float
    memory_total: int
    memory_available: int
    # On the volume of the agent's data folder.
    disk_free: int


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True):
    session_id: UUID
    held: list[Held]
    # Changes since the last answered heartbeat.
    progress: list[Progress] = []
    host: HostUsage | None = None
    # Changes since the last answered heartbeat; sent immediately.
    readiness: list[Readiness] = []


class HeartbeatKept(msgspec.Struct, frozen=True):
    """A held id that is in neither list no longer belongs to this agent: stop it and drop its result."""

    server_time: int
    kept: list[UUID] = []
    cancels: list[Cancel] = []
    commands: list[Command] = []
