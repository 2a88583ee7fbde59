"""How long running work is kept by an agent that hears of no server, and how much of that it survives."""

from __future__ import annotations

from typing import Final

from hetuflow_core.durations import format_duration
from hetuflow_core.jobfile.documents import DEFAULT_LEASE

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
