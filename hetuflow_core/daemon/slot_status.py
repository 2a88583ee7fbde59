"""The state of a slot, for display."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from hetuflow_core.states import InstanceStatus


class SlotState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"  # but not ready
    READY = "ready"
    BACKING_OFF = "backing_off"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


def show(
    status: str | None,
    *,
    now: datetime,
    due_at: datetime | None = None,
    ready: bool = False,
    cancel_requested: bool = False,
    crashes: int = 0,
    rests: bool = False,
    last_status: str | None = None,
) -> SlotState:
    """`status` is of the live instance, `last_status` of the previous one."""
    if status is None:
        if not rests:
            return SlotState.STOPPED
        good = last_status in {InstanceStatus.SUCCEEDED, InstanceStatus.SKIPPED}
        return SlotState.STOPPED if good else SlotState.FAILED
    if cancel_requested:
        return SlotState.STOPPING
    if status == InstanceStatus.RUNNING:
        return SlotState.READY if ready else SlotState.RUNNING
    if crashes and due_at is not None and due_at > now:
        return SlotState.BACKING_OFF
    return SlotState.STARTING
