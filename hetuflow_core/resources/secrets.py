"""Secrets as the REST API shows and takes them; no answer has a value in it."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Secret(msgspec.Struct, frozen=True):
    """What may be known of a secret."""

    namespace: str
    name: str
    # Counts values; each new one is another version.
    version: int
    created_at: datetime
    updated_at: datetime
    updated_by: str | None = None
    # Jobs whose newest version uses it; only where one secret is shown.
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
    """How far encrypting the secrets' own keys with the newest key has come."""

    # Re-encrypted by this call, and still to do.
    rewrapped: int
    remaining: int
