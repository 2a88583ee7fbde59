"""The envelope of every message."""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

P = TypeVar("P")

GATEWAY_PATH = "/api/v1/gateway"


class MessageKind(StrEnum):
    REGISTER = "register"
    REGISTERED = "registered"
    POLL = "poll"
    POLLED = "polled"
    HEARTBEAT = "heartbeat"
    HEARTBEAT_KEPT = "heartbeat_kept"
    REPORTS = "reports"
    REPORTS_TAKEN = "reports_taken"
    LOG_CHUNKS = "log_chunks"
    LOG_CHUNKS_TAKEN = "log_chunks_taken"
    STORE_ARTIFACT = "store_artifact"
    ARTIFACT_STORED = "artifact_stored"
    FETCH_ARTIFACT = "fetch_artifact"
    ARTIFACT_FETCHED = "artifact_fetched"
    FETCH_SECRETS = "fetch_secrets"
    SECRETS_FETCHED = "secrets_fetched"
    ACKNOWLEDGEMENTS = "acknowledgements"
    ACKNOWLEDGEMENTS_TAKEN = "acknowledgements_taken"


class Metadata(msgspec.Struct, frozen=True, omit_defaults=True):
    traceparent: str | None = None


class Envelope(msgspec.Struct, Generic[P], frozen=True):
    message_id: UUID
    timestamp: int
    kind: MessageKind
    payload: P
    metadata: Metadata = Metadata()
