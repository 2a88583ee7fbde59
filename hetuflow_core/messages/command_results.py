"""What became of what an agent was told to do."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec


class Acknowledgement(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a command; with an `error` it was understood and could not be done."""

    command_id: UUID
    result: dict[str, Any] = {}
    error: str | None = None


class Acknowledgements(msgspec.Struct, frozen=True):
    session_id: UUID
    acknowledgements: list[Acknowledgement]


class AcknowledgementsTaken(msgspec.Struct, frozen=True):
    """All of them are known now, also those that were before."""

    server_time: int
