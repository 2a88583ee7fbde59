"""How large a run is, how long, and what it is held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds; generous where a busy machine alone may take its time."""

    # From the due time to the start of the process, while nothing is wrong and while something is.
    calm_latency: float = 5.0
    fault_latency: float = 60.0
    # How long after a fault has been undone things may still be late.
    recovery: float = 5.0
    # How long a new schedule may wait for somebody to make its first fires.
    generation: float = 20.0
    # The payloads' clock ticks in hundredths, and two clocks are read one after the other.
    tolerance: float = 0.05
    # How long what runs on a host that stood still may live on when that wakes up, its lease being over.
    waking: float = 3.0
    # How long everything may take to end once nothing new begins.
    settling: float = 90.0


# Those that are options: what a machine can do is for its owner to say.
TOLD_BOUNDS: Final = ("calm_latency", "fault_latency", "recovery")


@dataclass(frozen=True, slots=True)
class RunSettings:
    seed: int
    faults: Sequence[str]
    is_quick: bool = False
    # How much work there is, as a multiple of what the other figures say.
    rate: float = 1.0
    servers: int = 3
    agents: int = 4
    slots: int = 8
    # Before the first fault: what starts then is judged as starts are where nothing is wrong.
    prelude: float = 8.0
    # Between two of them, and after the last.
    calm: float = 8.0
    # How long a fault lasts, unless the fault knows better.
    hold: float = 6.0
    schedules: int = 40
    # Seconds between two fires of a schedule, at least and at most, at a rate of one.
    intervals: tuple[int, int] = (1, 2)
    leader_ttl: float = 4.0
    server_beat: float = 0.5
    lease: float = 6.0
    # Off: PostgreSQL leaves writing to the kernel, which outlives every fault that is made here.
    durable: bool = True
    # Whether faults that touch different things are made beside each other.
    together: bool = False
    # `namespaces`, `proxies`, or `auto`: namespaces where they can be had.
    network: str = "auto"
    # What clients do by hand comes so many times as slowly.
    pace: float = 1.0
    bounds: Bounds = Bounds()

    @property
    def interval_bounds(self) -> tuple[int, int]:
        """Whole seconds between two fires at this rate."""
        least, most = (max(1, round(seconds / self.rate)) for seconds in self.intervals)
        return least, most

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def quick(seed: int, faults: Sequence[str]) -> RunSettings:
    """A short run on a busy machine: fewer processes, fewer fires, more patience."""
    return RunSettings(
        seed=seed,
        faults=faults,
        is_quick=True,
        servers=2,
        agents=2,
        slots=12,
        prelude=3.0,
        calm=0.5,
        hold=2.5,
        schedules=14,
        intervals=(2, 4),
        leader_ttl=3.0,
        lease=5.0,
        durable=False,
        together=True,
        pace=2.0,
        bounds=Bounds(calm_latency=20.0, fault_latency=90.0, recovery=20.0, settling=120.0),
    )
