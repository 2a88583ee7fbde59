"""Results of commands to an agent."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec


class Acknowledgement(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a command; `error` is set if the command was understood and failed."""

    command_id: UUID
    result: dict[str, Any] = {}
    error: str | None = None


class Acknowledgements(msgspec.Struct, frozen=True):
    session_id: UUID
    acknowledgements: list[Acknowledgement]


class AcknowledgementsTaken(msgspec.Struct, frozen=True):
    """All results are stored, including repeated ones."""

    server_time: int
