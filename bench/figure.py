"""What a figure is: lines, each a value beside the limit it is held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.samples import Spread, paired_ratios
from bench.system import System


class BenchFailed(Exception):
    """What was to be measured did not happen; the message says what happened instead."""


@dataclass(frozen=True, slots=True)
class Aim:
    """Which part of the limit we want to reach: at least so much of a rate, at most so much of a time."""

    ratio: float
    at_least: bool

    def met_by(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.at_least else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.ratio:g}"


@dataclass(frozen=True, slots=True)
class Limit:
    what: str
    # One for each repetition of the value, measured next to it.
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Line:
    what: str
    unit: str
    values: Sequence[float]
    limit: Limit | None = None
    aim: Aim | None = None

    @property
    def value(self) -> Spread:
        return Spread.of(self.values)

    @property
    def ratio(self) -> Spread | None:
        return Spread.of(paired_ratios(self.values, self.limit.values)) if self.limit else None


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    lines: Sequence[Line]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is measured."""

    repetitions: int
    # Of one repetition of one rate.
    seconds: float
    # Of one repetition of a latency.
    triggers: int


FULL = Pace(repetitions=3, seconds=2.5, triggers=80)
QUICK = Pace(repetitions=3, seconds=0.3, triggers=12)


@dataclass(frozen=True, slots=True)
class Context:
    system: System
    pace: Pace
    # Tells the person who waits what is going on.
    say: Callable[[str], None]


Measure = Callable[[Context], Figure]
