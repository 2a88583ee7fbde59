"""When a process whose lease nobody renews has to end: before the server may give its work away."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

# Of the lease, counted from the moment the last heartbeat that succeeded was sent.
TERM_AT: Final = 0.6
KILL_AT: Final = 0.85


class Fence(StrEnum):
    """What has to be done to a process without word from the server."""

    LEAVE = "leave"
    TERM = "term"
    KILL = "kill"


def fence(now: float, renewed_at: float, lease: float) -> Fence:
    """All in seconds of boottime: a machine that slept has lost its leases too."""
    silent = now - renewed_at
    if silent >= KILL_AT * lease:
        return Fence.KILL
    return Fence.TERM if silent >= TERM_AT * lease else Fence.LEAVE
