"""Delivery of secret values to the agent that holds the claim."""

from __future__ import annotations

from uuid import UUID

import msgspec


class FetchSecrets(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests the values of the secrets of a claim that this agent holds."""

    session_id: UUID
    instance_id: UUID
    token: UUID
    # Return only these versions, with which the process was started, to mask them in its log.
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
