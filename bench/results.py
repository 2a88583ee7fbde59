"""What a run leaves behind: one JSON document with every repetition and everything made of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bench.figure import Figure, Line, Pace
from bench.machine import Machine

FORMAT = 1


class NotResults(Exception):
    """A file does not hold what a run of the benchmark writes."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure, how long it took, and how busy the machine was when it began and when it ended."""

    figure: Figure
    seconds: float
    # One-minute load averages: the benchmark's own work counts in the second.
    load_before: float
    load_after: float


@dataclass(frozen=True, slots=True)
class Failure:
    figure: str
    why: str


@dataclass(slots=True)
class Results:
    machine: Machine
    pace: Pace
    measured: list[Measured] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    format: int = FORMAT

    @property
    def figures(self) -> list[Figure]:
        return [one.figure for one in self.measured]

    def as_json(self) -> dict[str, Any]:
        """Every repetition; what follows from them (median, spread, ratio, verdict) stands beside it."""
        document = asdict(self)
        for told, one in zip(document["measured"], self.measured, strict=True):
            for line, from_line in zip(told["figure"]["lines"], one.figure.lines, strict=True):
                line.update(_derived(from_line))
        return document


def _derived(line: Line) -> dict[str, Any]:
    ratio = line.ratio
    return {
        "value": asdict(line.value),
        "ratio": asdict(ratio) if ratio else None,
        "verdict": line.verdict,
    }


def save(file: Path, results: Results) -> None:
    """Replace the file as a whole: whoever reads it while a run goes on sees some state of it, never half."""
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_name(f".{file.name}.{os.getpid()}")
    encoded = msgspec.json.format(msgspec.json.encode(results.as_json()), indent=1)
    written.write_bytes(encoded + b"\n")
    written.replace(file)


def load(files: Sequence[Path]) -> Results:
    """Read runs back, the later ones taking the place of what earlier ones measured too."""
    read = [_read(file) for file in files]
    by_name = {one.figure.name: one for results in read for one in results.measured}
    last = read[-1]
    return Results(
        last.machine,
        last.pace,
        list(by_name.values()),
        [one for one in last.failures if one.figure not in by_name],
        sum(results.seconds for results in read),
    )


def _read(file: Path) -> Results:
    try:
        results = msgspec.json.decode(file.read_bytes(), type=Results)
    except (OSError, msgspec.MsgspecError) as error:
        raise NotResults(f"{file} cannot be read as a run of the benchmark: {error}.") from error
    if results.format != FORMAT:
        raise NotResults(f"{file} is of format {results.format}, not {FORMAT}: measure again.")
    return results
