"""Figures for people: a table of all lines, and one of what was to be reached.

`python -m bench.report RUN.json … [--into FILE]` makes the tables of runs again, the later ones taking the
place of what earlier ones measured too; with `--into` it puts them between the two marks of that file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.figure import Aim, Figure, Line
from bench.results import NotResults, Results, load
from bench.samples import Spread

_HEADER = ("figure", "value", "limit measured beside it", "limit", "ratio", "reach", "aim", "verdict")
_NOTHING = "-"
_TEN, _HUNDRED = 10, 100
_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"


def table(figures: Sequence[Figure]) -> str:
    """Write all lines as one Markdown table with aligned columns."""
    rows: list[tuple[str, ...]] = [_HEADER]
    for figure in figures:
        rows += map(_cells, figure.lines)
        rows += ((skip.what, f"skipped: {skip.why}", *[_NOTHING] * 6) for skip in figure.skipped)
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    head, *body = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    )
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([head, rule, *body])


def document(results: Results) -> str:
    """Everything a run has to tell: all lines, those with two bounds once more, and the circumstances."""
    wanted = [Figure(figure.name, _with_best(figure.lines), (), figure.skipped) for figure in results.figures]
    wanted = [figure for figure in wanted if figure.lines or figure.skipped]
    parts = [table(results.figures)]
    if wanted:
        parts.append(f"What is to be reached, of the same lines:\n\n{table(wanted)}")
    parts.append("\n".join(f"- {note}." for note in _notes(results)))
    return "\n\n".join(parts)


def put_into(text: str, tables: str) -> str:
    """The text with what stands between its two marks replaced."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise NotResults(f"There must be a line {_BEGIN} and, after it, a line {_END}.")
    return f"{before}{begin}\n\n{tables}\n\n{end}{after}"


def _with_best(lines: Iterable[Line]) -> list[Line]:
    """Those with two bounds: the ones that were chosen before anything was measured."""
    return [line for line in lines if line.aim and line.aim.best is not None]


def _notes(results: Results) -> list[str]:
    pace = results.pace
    how = f"Median (lowest..highest) of {pace.repetitions} interleaved repetitions, {pace.name} sizes"
    loads = ", ".join(
        f"{one.figure.name} {one.load_before:.1f}..{one.load_after:.1f}" for one in results.measured
    )
    return [
        *results.machine.sentences(),
        f"{how}, in {results.seconds:.0f} s",
        f"Load when each began and ended: {loads}",
        *(f"{one.figure} could not be measured: {one.why}" for one in results.failures),
        *(note for figure in results.figures for note in figure.notes),
    ]


def _cells(line: Line) -> tuple[str, ...]:
    limit, ratio, aim = line.limit, line.ratio, line.aim
    return (
        line.what,
        shown(line.value, line.unit),
        limit.what if limit else _NOTHING,
        shown(Spread.of(limit.values), line.unit) if limit else _NOTHING,
        shown(ratio, "") if ratio else _NOTHING,
        _bound(aim, aim.reach, line.unit) if aim else _NOTHING,
        _bound(aim, aim.best, line.unit) if aim else _NOTHING,
        str(line.verdict or _NOTHING),
    )


def _bound(aim: Aim, bound: float | None, unit: str) -> str:
    if bound is None:
        return _NOTHING
    # Not `:g`, which writes a hundred thousand as 1e+05.
    number = f"{bound:,.10g}" if bound < _HUNDRED else f"{bound:,.0f}"
    return f"{'≥' if aim.at_least else '≤'} {number} {unit if aim.of_value else ''}".rstrip()


def shown(spread: Spread, unit: str) -> str:
    """Three figures are as much as a noisy machine gives: `12.3 (11.9..14.0) ms`."""
    text = _number(spread.median)
    if spread.low < spread.high:  # a single value has no spread, which is not the same as one of zero
        text += f" ({_number(spread.low)}..{_number(spread.high)})"
    return f"{text} {unit.strip()}".rstrip()


def _number(value: float) -> str:
    if value >= _HUNDRED:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= _TEN else f"{value:.2f}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description="Makes tables of runs.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN.json", help="what a run has written")
    parser.add_argument(
        "--into", type=Path, metavar="FILE", help="a Markdown file with marks to put the tables between"
    )
    given = parser.parse_args(arguments)
    try:
        tables = document(load(given.runs))
        if given.into is None:
            print(tables)
        else:
            given.into.write_text(put_into(given.into.read_text("utf-8"), tables), "utf-8")
    except (NotResults, OSError) as error:
        print(f"bench.report: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
