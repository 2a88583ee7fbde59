"""Asking for work, and what else comes with the answer."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.agent.commands import CommandKind
from hetuflow_core.messages.assignments import Assignment
from hetuflow_core.placement import Resources, RunningJob


class Poll(msgspec.Struct, frozen=True):
    session_id: UUID
    # The same again when the answer was lost, with `repeated`: the server gives the same assignments again.
    request_id: UUID
    # How many assignments it can begin, now or within a moment.
    free_slots: int
    wait_ms: int
    # How far ahead of their due time the agent takes assignments; it starts them by its own timer.
    prefetch_ms: int = 2_000
    # What is left of its resources; all of them if it does not say.
    free_resources: Resources | None = None
    # The jobs it has something of under way, each once: work may want not to be beside them.
    running: list[RunningJob] = []
    # Sent before, and no answer came: whatever server gets it looks for what this request was given then.
    repeated: bool = False


class Cancel(msgspec.Struct, frozen=True):
    """End this claim: kill its process, or do not start it, and finish it as cancelled."""

    instance_id: UUID
    token: UUID


class Command(msgspec.Struct, frozen=True):
    """Something else to do. Delivered again until it is acknowledged, and done once: `id` tells."""

    id: UUID
    kind: CommandKind
    payload: dict[str, Any] = {}


class Polled(msgspec.Struct, frozen=True):
    server_time: int
    assignments: list[Assignment] = []
    cancels: list[Cancel] = []
    commands: list[Command] = []
