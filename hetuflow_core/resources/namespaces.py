"""Namespaces in the REST API."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class Namespace(msgspec.Struct, frozen=True):
    name: str
    weight: int
    # A duration for jobs without a lease; None: 5 minutes.
    lease: str | None
    labels: dict[str, str]
    created_at: datetime
    updated_at: datetime
    # The owner of the namespace; None until it is bound.
    server_id: UUID | None
    hostname: str | None
    bound_at: datetime | None
    pinned: bool
    # The hostname that keeps the namespace while a server runs there.
    pinned_to: str | None
    # Recent claims per second, over all servers.
    load: float


class NamespaceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    weight: int = 100
    labels: dict[str, str] = {}
    lease: str | None = None


class NamespaceChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # Omitted fields stay unchanged.
    weight: int | None = None
    labels: dict[str, str] | None = None
    # None removes the lease.
    lease: str | msgspec.UnsetType | None = msgspec.UNSET


class BindRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # Id or hostname of a live server; omit it, with `pinned` false, to remove the pin.
    server: str | None = None
    pinned: bool = True
