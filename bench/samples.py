"""Few numbers about many measurements."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of repetitions, and how far they lay apart: the noise that any comparison has to beat."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if not values:
            raise ValueError("a spread needs at least one value")
        return cls(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """By nearest rank: one of the values, never something between two of them."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    if not 0 < percent <= 100:  # noqa: PLR2004  per cent
        raise ValueError("a percentile lies above 0 and up to 100")
    return sorted(values)[math.ceil(percent / 100 * len(values)) - 1]


def paired_ratios(values: Sequence[float], limits: Sequence[float]) -> list[float]:
    """Each value over the limit measured next to it, so that what slowed both down cancels out."""
    return [value / limit for value, limit in zip(values, limits, strict=True)]


def amount_for(seconds: float, rate: float, *, least: int, most: int, step: int = 1) -> int:
    """How much work keeps a repetition busy for about this long, in whole steps."""
    wanted = min(max(seconds * rate, least), most)
    return max(1, round(wanted / step)) * step
