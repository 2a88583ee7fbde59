"""Transfer of input and output files of tasks, in chunks."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec


class StoreArtifact(msgspec.Struct, frozen=True):
    """A chunk of an output file; `size` and `sha256` are of the whole file."""

    session_id: UUID
    instance_id: UUID
    token: UUID
    path: str
    size: int
    sha256: str
    offset: int
    # Base64 in JSON.
    data: bytes


class ArtifactOutcome(StrEnum):
    STORED = "stored"
    # The server has `length` bytes: continue from there.
    OFFSET = "offset"
    # The claim is not this agent's: stop sending the file.
    REFUSED = "refused"
    # The file, or all files of the instance together, exceed the server's limit.
    TOO_LARGE = "too_large"


class ArtifactStored(msgspec.Struct, frozen=True):
    server_time: int
    outcome: ArtifactOutcome
    length: int


class FetchArtifact(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests a chunk of an artifact of the same namespace for an instance that the agent holds."""

    session_id: UUID
    instance_id: UUID
    token: UUID
    path: str
    offset: int = 0
    job: str | None = None
    task: UUID | None = None
    # From the first response: later chunks come from the same file even if a newer task has succeeded.
    source_instance_id: UUID | None = None


class ArtifactFetched(msgspec.Struct, frozen=True):
    server_time: int
    source_instance_id: UUID
    size: int
    sha256: str
    data: bytes
