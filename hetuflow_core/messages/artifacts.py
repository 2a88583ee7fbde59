"""Files that go to tasks and come from them, piece by piece."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec


class StoreArtifact(msgspec.Struct, frozen=True):
    """A piece of a file that an instance has left behind; `size` and `sha256` are those of the whole file."""

    session_id: UUID
    instance_id: UUID
    token: UUID
    path: str
    size: int
    sha256: str
    offset: int
    # As base64 in JSON.
    data: bytes


class ArtifactOutcome(StrEnum):
    STORED = "stored"
    # `length` is where the server is: send again from there.
    OFFSET = "offset"
    # Not this agent's instance: send nothing more of it.
    REFUSED = "refused"
    # The file, or all files of the instance together, are more than the server keeps.
    TOO_LARGE = "too_large"


class ArtifactStored(msgspec.Struct, frozen=True):
    server_time: int
    outcome: ArtifactOutcome
    length: int


class FetchArtifact(msgspec.Struct, frozen=True, omit_defaults=True):
    """Asks, for an instance the agent holds, for a piece of an artifact of the same namespace."""

    session_id: UUID
    instance_id: UUID
    token: UUID
    path: str
    offset: int = 0
    job: str | None = None
    task: UUID | None = None
    # As the first answer said: the next piece is of the same file, whatever has succeeded meanwhile.
    source_instance_id: UUID | None = None


class ArtifactFetched(msgspec.Struct, frozen=True):
    server_time: int
    source_instance_id: UUID
    size: int
    sha256: str
    data: bytes
