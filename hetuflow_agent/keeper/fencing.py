"""When a process whose lease is not renewed must end: before the server may assign its work again."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

# Shares of the lease, counted from the time at which the last successful heartbeat was sent.
TERM_AT: Final = 0.6
KILL_AT: Final = 0.85


class Fence(StrEnum):
    """The action for a process whose lease is not renewed."""

    LEAVE = "leave"
    TERM = "term"
    KILL = "kill"


def fence(now: float, renewed_at: float, lease: float) -> Fence:
    """All in seconds of boottime: leases also expire while the host sleeps."""
    silent = now - renewed_at
    if silent >= KILL_AT * lease:
        return Fence.KILL
    return Fence.TERM if silent >= TERM_AT * lease else Fence.LEAVE
