"""Which agent an instance of a daemon is offered to first: one without another of the same daemon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class DaemonHost:
    """An agent that takes work of the daemon's job."""

    id: UUID
    slots: int
    # How many instances it has, of whatever job.
    load: int = 0


def spread(number: int, hosts: Iterable[DaemonHost], occupied: Sequence[UUID]) -> list[UUID | None]:
    """Return the agents for so many new instances, given where the daemon's others are; None: any.

    The fewest of the same daemon count first, then the least loaded. An agent without a free slot is no
    choice while another has one: what is tied to it would only wait.
    """
    here = Counter(occupied)
    left = sorted(hosts, key=lambda host: host.id)
    chosen: list[UUID | None] = []
    given: Counter[UUID] = Counter()
    for _ in range(number):
        best = min(
            (host for host in left if host.load + given[host.id] < host.slots),
            key=lambda host: (here[host.id], (host.load + given[host.id]) / host.slots),
            default=None,
        )
        chosen.append(best.id if best else None)
        if best is not None:
            here[best.id] += 1
            given[best.id] += 1
    return chosen
