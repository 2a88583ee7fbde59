"""What a figure is: lines, each a value beside the limit it is held against, with what it is to reach."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from bench.samples import Spread, paired_ratios
from bench.system import System

T = TypeVar("T")


class BenchFailed(Exception):
    """What was to be measured did not happen; the message says what happened instead."""


class Verdict(StrEnum):
    MISSED = "missed"
    REACHED = "reached"
    AIM_MET = "aim met"


@dataclass(frozen=True, slots=True)
class Aim:
    """What is to be reached, and what would please us: at least so much of a rate, at most of a time.

    Of the ratio to the limit, which other machines can be held to as well, unless it is `of_value`: what
    people feel (milliseconds, KiB, lines per second) is wanted whatever the machine.
    """

    reach: float
    at_least: bool
    best: float | None = None
    of_value: bool = False

    def verdict(self, measured: float) -> Verdict:
        if not self._within(measured, self.reach):
            return Verdict.MISSED
        if self.best is None or not self._within(measured, self.best):
            return Verdict.REACHED
        return Verdict.AIM_MET

    def _within(self, measured: float, bound: float) -> bool:
        return measured >= bound if self.at_least else measured <= bound


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

    @property
    def verdict(self) -> Verdict | None:
        """Of the median of this run alone; None where nothing is to be reached."""
        measured = self.value if self.aim is None or self.aim.of_value else self.ratio
        return self.aim.verdict(measured.median) if self.aim and measured else None


@dataclass(frozen=True, slots=True)
class Skip:
    """What could not be measured here, which says nothing about it."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    lines: Sequence[Line]
    notes: Sequence[str] = ()
    skipped: Sequence[Skip] = ()


def check(figure: Figure) -> None:
    """Refuse a figure that nothing can be made of: what is written down has to be numbers."""
    if not (figure.lines or figure.skipped):
        raise BenchFailed(f"{figure.name} has measured nothing.")
    for line in figure.lines:
        limits = line.limit.values if line.limit else [1.0] * len(line.values)
        if not line.values or len(limits) != len(line.values):
            raise BenchFailed(f"{line.what}: {len(line.values)} values beside {len(limits)} of its limit.")
        if not all(map(math.isfinite, [*line.values, *limits])) or 0 in limits:
            raise BenchFailed(f"{line.what}: {line.values} beside {limits} cannot be compared.")


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is measured."""

    name: str
    repetitions: int
    # Of one repetition of one rate.
    seconds: float
    # Of one repetition of a latency.
    triggers: int

    def sized(self, smoke: T, quick: T, usual: T, full: T) -> T:
        """Whatever else is larger the longer one is willing to wait."""
        return {SMOKE.name: smoke, QUICK.name: quick, USUAL.name: usual}.get(self.name, full)

    def unless_smoke(self, size: T, smoke: T) -> T:
        """What is the same at every pace that measures something."""
        return smoke if self.name == SMOKE.name else size


# Measures nothing: whether every figure still works is all it tells.
SMOKE = Pace("smoke", repetitions=1, seconds=0.02, triggers=2)
QUICK = Pace("quick", repetitions=3, seconds=0.3, triggers=12)
USUAL = Pace("usual", repetitions=3, seconds=2.0, triggers=70)
FULL = Pace("full", repetitions=5, seconds=3.0, triggers=80)


@dataclass(frozen=True, slots=True)
class Context:
    system: System
    pace: Pace
    # Tells the person who waits what is going on.
    say: Callable[[str], None]


Measure = Callable[[Context], Figure]
