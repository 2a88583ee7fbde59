"""Polls for work; the response also contains cancels and commands."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.agent.commands import CommandKind
from hetuflow_core.messages.assignments import Assignment
from hetuflow_core.placement import Resources, RunningJob


class Poll(msgspec.Struct, frozen=True):
    session_id: UUID
    # Reused, with `repeated`, if the response was lost: the server returns the same assignments again.
    request_id: UUID
    # Number of assignments that the agent can start now or very soon.
    free_slots: int
    wait_ms: int
    # The agent accepts assignments this long before they are due and starts them on time.
    prefetch_ms: int = 2_000
    # Free resources; None: all resources are free.
    free_resources: Resources | None = None
    # Jobs with running instances, each once; used for anti-affinity.
    running: list[RunningJob] = []
    # The request was sent before without a response: the server returns the assignments made for it, if any.
    repeated: bool = False


class Cancel(msgspec.Struct, frozen=True):
    """Cancels a claim: kill its process, or do not start it, and finish it as cancelled."""

    instance_id: UUID
    token: UUID


class Command(msgspec.Struct, frozen=True):
    """A command, delivered repeatedly until it is acknowledged; the agent runs each `id` once."""

    id: UUID
    kind: CommandKind
    payload: dict[str, Any] = {}


class Polled(msgspec.Struct, frozen=True):
    server_time: int
    assignments: list[Assignment] = []
    cancels: list[Cancel] = []
    commands: list[Command] = []
