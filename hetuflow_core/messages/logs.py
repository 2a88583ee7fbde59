"""Transfer of task logs."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec


class LogChunk(msgspec.Struct, frozen=True):
    instance_id: UUID
    token: UUID
    stream: str
    # Offset of the first byte of `data`, before compression.
    offset: int
    byte_length: int
    # Compressed with zstd; base64 in JSON.
    data: bytes


class LogChunks(msgspec.Struct, frozen=True):
    session_id: UUID
    chunks: list[LogChunk]


class LogOutcome(StrEnum):
    APPENDED = "appended"
    # The server has `length` bytes: continue from there. A repeated chunk is skipped in this way.
    OFFSET = "offset"
    # The claim is not this agent's, or the log exceeds its limit: stop sending it.
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
