"""Choose preferred agents for the instances of a daemon, to spread them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class DaemonHost:
    """An agent that may run the daemon's job."""

    id: UUID
    slots: int
    # Number of instances of all jobs on the agent.
    load: int = 0


def spread(number: int, hosts: Iterable[DaemonHost], occupied: Sequence[UUID]) -> list[UUID | None]:
    """Return preferred agents for `number` new instances, given the agents of existing ones; None: any.

    Prefers agents with the fewest instances of the daemon, then the least loaded. Agents without a free slot
    are not chosen, because the instance would wait.
    """
    instances = Counter(occupied)
    candidates = sorted(hosts, key=lambda host: host.id)
    chosen: list[UUID | None] = []
    assigned: Counter[UUID] = Counter()
    for _ in range(number):
        best = min(
            (host for host in candidates if host.load + assigned[host.id] < host.slots),
            key=lambda host: (instances[host.id], (host.load + assigned[host.id]) / host.slots),
            default=None,
        )
        chosen.append(best.id if best else None)
        if best is not None:
            instances[best.id] += 1
            assigned[best.id] += 1
    return chosen
