"""Values of secrets, for whoever holds the claim that may know them."""

from __future__ import annotations

from uuid import UUID

import msgspec


class FetchSecrets(msgspec.Struct, frozen=True, omit_defaults=True):
    """Asks for the values of the secrets that the job of a claim this agent holds uses."""

    session_id: UUID
    instance_id: UUID
    token: UUID
    # Only these versions: of what the process was started with, to know what to mask in its log.
    versions: dict[str, int] = {}


class DeliveredSecret(msgspec.Struct, frozen=True):
    name: str
    version: int
    value: str

    def __repr__(self) -> str:
        return f"DeliveredSecret(name={self.name!r}, version={self.version})"


class SecretsFetched(msgspec.Struct, frozen=True):
    server_time: int
    secrets: list[DeliveredSecret]
