"""Commands to agents and their states.

pending ─► delivered ─► acknowledged        redelivered with growing delays until it is acknowledged
   │           │
   └───────────┴──► superseded | dead       replaced by a later command | not acknowledged in time
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


# States in which a command may still be delivered.
LIVE_STATES: Final = frozenset({CommandState.PENDING, CommandState.DELIVERED})
# These commands set whether the agent accepts work, so only the latest one counts.
MODE_COMMANDS: Final = frozenset({CommandKind.DRAIN, CommandKind.RESUME})

MOST_ATTEMPTS: Final = 10
FIRST_PAUSE: Final = timedelta(seconds=5)
LONGEST_PAUSE: Final = timedelta(minutes=5)
# How long a command may wait for its agent; a shutdown must not arrive a day late.
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
    """Stops the agent after its running tasks have ended, or `now`, which ends them."""

    now: bool = False


class AgentConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings that can change while an agent runs; None leaves a setting unchanged."""

    slots: int | None = None
    # Replaces all labels of the agent's configuration file.
    labels: dict[str, str] | None = None
    taints: list[str] | None = None
    log_level: LogLevel | None = None
    # Discard earlier commands first, so that the configuration file applies again.
    reset: bool = False

    def over(self, earlier: AgentConfiguration) -> AgentConfiguration:
        """Return the effective settings if this command follows `earlier`."""
        if self.reset:
            return msgspec.structs.replace(self, reset=False)
        return AgentConfiguration(
            slots=earlier.slots if self.slots is None else self.slots,
            labels=earlier.labels if self.labels is None else self.labels,
            taints=earlier.taints if self.taints is None else self.taints,
            log_level=earlier.log_level if self.log_level is None else self.log_level,
        )
