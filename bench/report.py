"""Figures for people (a table) and for programs (JSON lines)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.figure import Figure, Line
from bench.machine import Machine
from bench.samples import Spread

_HEADER = ("figure", "value", "limit measured beside it", "limit", "ratio", "aim")
_NOTHING = "-"
_TEN, _HUNDRED = 10, 100


def table(figures: Sequence[Figure]) -> str:
    """Write all lines as one Markdown table with aligned columns."""
    rows = [_HEADER, *(_cells(line) for figure in figures for line in figure.lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    head, *body = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    )
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([head, rule, *body])


def json_lines(machine: Machine, figures: Sequence[Figure]) -> Iterator[str]:
    """Write one line for the machine and one for each line of each figure, with every repetition."""
    yield json.dumps({"kind": "machine", **machine.as_json()})
    for figure in figures:
        for line in figure.lines:
            ratio = asdict(line.ratio) if line.ratio else None
            yield json.dumps(
                {"kind": "line", "figure": figure.name, **asdict(line), "ratio": ratio}, ensure_ascii=False
            )


def append_json(file: Path, machine: Machine, figures: Sequence[Figure]) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.writelines(f"{line}\n" for line in json_lines(machine, figures))


def _cells(line: Line) -> tuple[str, ...]:
    limit, ratio = line.limit, line.ratio
    if limit is None or ratio is None:
        return (line.what, shown(line.value, line.unit), _NOTHING, _NOTHING, _NOTHING, _NOTHING)
    aim = _NOTHING
    if line.aim is not None:
        aim = f"{line.aim} {'met' if line.aim.met_by(ratio.median) else 'missed'}"
    return (
        line.what,
        shown(line.value, line.unit),
        limit.what,
        shown(Spread.of(limit.values), line.unit),
        shown(ratio, ""),
        aim,
    )


def shown(spread: Spread, unit: str) -> str:
    """Three figures are as much as a noisy machine gives: `12.3 (11.9..14.0) ms`."""
    text = _number(spread.median)
    if spread.low < spread.high:  # a single value has no spread, which is not the same as one of zero
        text += f" ({_number(spread.low)}..{_number(spread.high)})"
    return f"{text} {unit}".rstrip()


def _number(value: float) -> str:
    if value >= _HUNDRED:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= _TEN else f"{value:.2f}"
