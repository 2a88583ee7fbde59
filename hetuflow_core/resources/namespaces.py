"""Namespaces as the REST API shows and takes them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class Namespace(msgspec.Struct, frozen=True):
    name: str
    weight: int
    # A duration; None: 5 minutes. For work whose job says none of its own.
    lease: str | None
    labels: dict[str, str]
    created_at: datetime
    updated_at: datetime
    # The one that looks after it; None until it is bound.
    server_id: UUID | None
    hostname: str | None
    bound_at: datetime | None
    pinned: bool
    # The hostname it stays on while a server there lives.
    pinned_to: str | None
    # Claims per second of late, by all servers' agents.
    load: float


class NamespaceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    weight: int = 100
    labels: dict[str, str] = {}
    lease: str | None = None


class NamespaceChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # What is not given stays as it is.
    weight: int | None = None
    labels: dict[str, str] | None = None
    # None takes it away.
    lease: str | msgspec.UnsetType | None = msgspec.UNSET


class BindRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # The id or hostname of a server that lives; without one a pin is taken away (`pinned` false).
    server: str | None = None
    pinned: bool = True
