"""What an end means: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hetuflow_agent.keeper.processes import Exit
from hetuflow_core.states import InstanceStatus

# Of the lease, counted from the moment the last heartbeat that succeeded was sent.
TERM_AT: Final = 0.6
KILL_AT: Final = 0.85


class Ending(StrEnum):
    """Why we ended an attempt."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    # The server no longer counts it as ours: its result is not wanted.
    UNWANTED = "unwanted"
    LEASE_LOST = "lease_lost"
    AGENT_SHUTDOWN = "agent_shutdown"


@dataclass(frozen=True, slots=True)
class Verdict:
    status: InstanceStatus
    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None
    signal: int | None = None


def classify(end: Exit, ending: Ending | None) -> Verdict | None:
    """The verdict on a process that ended; None when nobody wants to know."""
    match ending:
        case Ending.UNWANTED:
            return None
        case Ending.CANCELLED:
            return Verdict(InstanceStatus.CANCELLED, exit_code=end.exit_code, signal=end.signal)
        case Ending.TIMED_OUT:
            return Verdict(InstanceStatus.TIMED_OUT, exit_code=end.exit_code, signal=end.signal)
        case Ending.LEASE_LOST | Ending.AGENT_SHUTDOWN:
            return Verdict(InstanceStatus.LOST, ending.value, exit_code=end.exit_code, signal=end.signal)
    if end.exit_code == 0:
        return Verdict(InstanceStatus.SUCCEEDED, exit_code=0)
    return Verdict(InstanceStatus.FAILED, exit_code=end.exit_code, signal=end.signal)


class Fence(StrEnum):
    """What an agent without word from the server has to do to a process by itself."""

    LEAVE = "leave"
    TERM = "term"
    KILL = "kill"


def fence(now: float, renewed_at: float, lease: float) -> Fence:
    """All in seconds of boottime: a machine that slept has lost its leases too."""
    silent = now - renewed_at
    if silent >= KILL_AT * lease:
        return Fence.KILL
    return Fence.TERM if silent >= TERM_AT * lease else Fence.LEAVE
