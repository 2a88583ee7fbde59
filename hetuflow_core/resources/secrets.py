"""Secrets in the REST API; no response contains a value."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Secret(msgspec.Struct, frozen=True):
    """A secret without its value."""

    namespace: str
    name: str
    # Increases with every new value.
    version: int
    created_at: datetime
    updated_at: datetime
    updated_by: str | None = None
    # Jobs whose newest version uses the secret; only in the response for a single secret.
    used_by: list[str] = []


class SecretRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    value: str
    namespace: str = "default"

    def __repr__(self) -> str:
        return f"SecretRequest(name={self.name!r}, namespace={self.namespace!r})"


class SecretValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: str

    def __repr__(self) -> str:
        return "SecretValue()"


class KeyRotation(msgspec.Struct, frozen=True):
    """Progress of the re-encryption of data keys with the newest key."""

    # Data keys re-encrypted by this call, and remaining ones.
    rewrapped: int
    remaining: int
