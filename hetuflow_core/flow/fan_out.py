"""A node with many tasks: one per item of a map, or one per host of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import msgspec

from hetuflow_core.states import FlowNodeStatus


class ItemShare(msgspec.Struct, frozen=True):
    """A number or a percentage: `5` or `25%`."""

    count: int | None = None
    percent: int | None = None

    def __str__(self) -> str:
        return f"{self.percent}%" if self.percent is not None else str(self.count)

    def of(self, total: int) -> int:
        """Return the number of items, rounded up, so that a percentage is never zero."""
        if self.percent is not None:
            return ceil(Fraction(self.percent, 100) * total)
        return min(self.count or 0, total)


@dataclass(frozen=True, slots=True)
class FanOut:
    total: int
    # Most unfinished tasks at a time.
    parallel: int
    # Number of tasks that must succeed.
    quorum: int
    # Cumulative end of each wave; the next wave begins when all tasks of the previous one have ended.
    waves: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemCounts:
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def done(self) -> int:
        return self.succeeded + self.failed + self.skipped

    @property
    def under_way(self) -> int:
        return self.started - self.done


def fleet_spread(
    total: int,
    *,
    waves: Sequence[ItemShare] = (),
    parallel: ItemShare | None = None,
    quorum: ItemShare | None = None,
) -> FanOut:
    """Return the limits; waves are cumulative: `[1, 25%, 100%]` is one host, then a quarter, then all."""
    bounds = sorted({min(total, max(1, wave.of(total))) for wave in waves})
    return FanOut(
        total=total,
        parallel=total if parallel is None else max(1, parallel.of(total)),
        quorum=total if quorum is None else quorum.of(total),
        waves=tuple(bounds),
    )


def is_failing(spread: FanOut, counts: ItemCounts) -> bool:
    """Whether the quorum can no longer be reached."""
    return counts.failed > spread.total - spread.quorum


def may_start(spread: FanOut, counts: ItemCounts) -> int:
    """Return how many more tasks may start now."""
    if is_failing(spread, counts):
        return 0
    bound = next((wave for wave in spread.waves if wave > counts.done), spread.total)
    return max(0, min(bound - counts.started, spread.parallel - counts.under_way))


def outcome(spread: FanOut, counts: ItemCounts, *, ending: bool = False) -> FlowNodeStatus | None:
    """Return the final status of the node, or None; `ending`: no more tasks start."""
    failing = is_failing(spread, counts)
    if counts.under_way or (counts.done < spread.total and not (failing or ending)):
        return None
    if failing:
        return FlowNodeStatus.FAILED
    if counts.done < spread.total:
        return FlowNodeStatus.CANCELLED
    return (
        FlowNodeStatus.SKIPPED
        if spread.total and counts.skipped == spread.total
        else FlowNodeStatus.SUCCEEDED
    )
