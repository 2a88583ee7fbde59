"""How long an agent keeps running work without contact to a server, and which outages the work survives."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from hetuflow_core.durations import format_duration
from hetuflow_core.fields import duration

DEFAULT_LEASE: Final = timedelta(minutes=5)
# Under four seconds the fractions of it at which agents warn and kill are finer than a heartbeat.
SHORTEST_LEASE: Final = timedelta(seconds=4)
LEASE: Final = duration(SHORTEST_LEASE, timedelta(days=7))
# Agents that hear nothing for this share of a lease begin to end the work, so that it is over when others
# may be given it.
SURVIVED: Final = 0.6


def outage_survived() -> str:
    """What an outage of all servers means to work that runs."""
    lease, survived = format_duration(DEFAULT_LEASE), format_duration(DEFAULT_LEASE * SURVIVED)
    return (
        f"running work survives an outage of all servers of up to {survived}, {SURVIVED} of the default "
        f"lease of {lease}: namespaces and jobs set `lease`, or jobs `on_lost: continue`, to survive a "
        "longer one"
    )
