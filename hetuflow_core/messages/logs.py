"""What tasks print."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec


class LogChunk(msgspec.Struct, frozen=True):
    instance_id: UUID
    token: UUID
    stream: str
    # Of the first byte of `data` before compression.
    offset: int
    byte_length: int
    # zstd; as base64 in JSON.
    data: bytes


class LogChunks(msgspec.Struct, frozen=True):
    session_id: UUID
    chunks: list[LogChunk]


class LogOutcome(StrEnum):
    APPENDED = "appended"
    # `length` is where the server is: send again from there (a repeated chunk is skipped that way).
    OFFSET = "offset"
    # Not this agent's log, or over the cap: send nothing more of it.
    REFUSED = "refused"


class LogResult(msgspec.Struct, frozen=True):
    instance_id: UUID
    stream: str
    outcome: LogOutcome
    length: int


class LogChunksTaken(msgspec.Struct, frozen=True):
    server_time: int
    # In the order of the chunks.
    results: list[LogResult]
