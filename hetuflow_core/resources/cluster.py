"""Servers and their leader as the REST API shows them."""

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
    """One process life of a server; after a restart it is another one."""

    id: UUID
    hostname: str
    url: str | None
    version: str
    weight: int
    # live, dead (not heard of for too long) or stopped.
    status: str
    leader: bool
    # How many it looks after.
    namespaces: int
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None


class Leader(msgspec.Struct, frozen=True):
    """`GET /system/leader`."""

    # None: nobody leads just now.
    server: Server | None
    # Grows with every change of leader.
    epoch: int
    since: datetime | None
    renewed_at: datetime | None
    expires_at: datetime | None
