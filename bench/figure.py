"""What a figure is: lines, each a value beside the limit it is held against, with what it is to reach."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is measured."""

    name: str
    repetitions: int
    # Of one repetition of one rate.
    seconds: float
    # Of one repetition of a latency.
    triggers: int

    def sized(self, quick: T, usual: T, full: T) -> T:
        """Whatever else is larger the longer one is willing to wait."""
        return {QUICK.name: quick, USUAL.name: usual}.get(self.name, full)


QUICK = Pace("quick", repetitions=3, seconds=0.3, triggers=12)
USUAL = Pace("usual", repetitions=3, seconds=2.0, triggers=70)
FULL = Pace("full", repetitions=5, seconds=3.0, triggers=120)


@dataclass(frozen=True, slots=True)
class Context:
    system: System
    pace: Pace
    # Tells the person who waits what is going on.
    say: Callable[[str], None]


Measure = Callable[[Context], Figure]
