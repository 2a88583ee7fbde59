"""Still here, still at it, and how far it is."""

from __future__ import annotations

from uuid import UUID

import msgspec

from hetuflow_core.messages.polls import Cancel, Command
from hetuflow_core.messages.registration import Held


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
