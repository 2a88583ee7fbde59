"""Servers and the leader in the REST API."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class ServerInfo(msgspec.Struct, frozen=True):
    """`GET /system/info`."""

    version: str
    schema_revision: str
    server_time: datetime


class Server(msgspec.Struct, frozen=True):
    """A server process; a restarted server has a new id."""

    id: UUID
    hostname: str
    url: str | None
    version: str
    weight: int
    # live, dead (heartbeats are overdue) or stopped.
    status: str
    leader: bool
    # Number of namespaces bound to the server.
    namespaces: int
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None


class Leader(msgspec.Struct, frozen=True):
    """`GET /system/leader`."""

    # None: no server leads.
    server: Server | None
    # Increases with every change of leader.
    epoch: int
    since: datetime | None
    renewed_at: datetime | None
    expires_at: datetime | None
