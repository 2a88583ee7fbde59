"""Commands to agents: what there is to say, and what becomes of it.

pending ─► delivered ─► acknowledged        redelivered with growing pauses until it is acknowledged
   │           │
   └───────────┴──► superseded | dead       a later one says otherwise | nobody answered in time
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final, Literal

import msgspec


class CommandKind(StrEnum):
    DRAIN = "drain"
    RESUME = "resume"
    SHUTDOWN = "shutdown"
    CONFIGURE = "configure"
    METRICS = "metrics"


class CommandState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    ACKNOWLEDGED = "acknowledged"
    SUPERSEDED = "superseded"
    DEAD = "dead"


# Those that may still be delivered.
LIVE_STATES: Final = frozenset({CommandState.PENDING, CommandState.DELIVERED})
# Each of these says whether the agent takes work, so only the latest one counts.
MODE_COMMANDS: Final = frozenset({CommandKind.DRAIN, CommandKind.RESUME})

MOST_ATTEMPTS: Final = 10
FIRST_PAUSE: Final = timedelta(seconds=5)
LONGEST_PAUSE: Final = timedelta(minutes=5)
# How long each may wait for its agent; a shutdown that comes a day late would be a surprise.
LIFETIMES: Final = {
    CommandKind.DRAIN: timedelta(days=1),
    CommandKind.RESUME: timedelta(days=1),
    CommandKind.SHUTDOWN: timedelta(minutes=10),
    CommandKind.CONFIGURE: timedelta(days=1),
    CommandKind.METRICS: timedelta(minutes=1),
}

LogLevel = Literal["debug", "info", "warning", "error"]
MOST_SLOTS: Final = 10_000


class Shutdown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stop the agent: once what runs has ended, or `now`, which ends it."""

    now: bool = False


class AgentConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings an agent may be given while it runs; what is None stays as it is."""

    slots: int | None = None
    # Take the place of all labels of its own configuration.
    labels: dict[str, str] | None = None
    taints: list[str] | None = None
    log_level: LogLevel | None = None
    # First forget what was given before, so that its own configuration counts again.
    reset: bool = False

    def over(self, earlier: AgentConfiguration) -> AgentConfiguration:
        """Return what holds when this is given after `earlier`."""
        if self.reset:
            return msgspec.structs.replace(self, reset=False)
        return AgentConfiguration(
            slots=earlier.slots if self.slots is None else self.slots,
            labels=earlier.labels if self.labels is None else self.labels,
            taints=earlier.taints if self.taints is None else self.taints,
            log_level=earlier.log_level if self.log_level is None else self.log_level,
        )
