"""Output on a terminal: colours and relative times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TextIO

from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from hetuflow_server.cli.output.layout import Block, Cell, Column, Kind, Marked, Sheet, Table, ago, written

_STYLES: Final[Mapping[str, str]] = {
    "succeeded": "green",
    "online": "green",
    "live": "green",
    "valid": "green",
    "created": "green",
    "changed": "yellow",
    "removed": "red",
    "running": "cyan",
    "reserved": "cyan",
    "waiting_retry": "yellow",
    "held": "yellow",
    "draining": "yellow",
    "failed": "red",
    "timed_out": "red",
    "lost": "red",
    "unreachable": "red",
    "cancelled": "magenta",
    "dead": "red",
    "expired": "dim",
    "revoked": "dim",
    "stopped": "dim",
    "disabled": "dim",
    "skipped": "dim",
    "offline": "dim",
}

_WIDEST: Final = 10_000
_LONGEST_WORD: Final = 40
# The gap that rich puts between columns.
_GAP: Final = 2


def show(blocks: Sequence[Block], *, now: datetime, file: TextIO) -> None:
    console = Console(file=file, highlight=False)
    for number, block in enumerate(blocks):
        if number:
            console.print()
        _print(console, _renderable(block, now))


def _print(console: Console, renderable: RenderableType) -> None:
    unbounded = console.options.update(width=_WIDEST)
    console.width = max(console.width, console.measure(renderable, options=unbounded).minimum)
    console.print(renderable)


def _renderable(block: Block, now: datetime) -> RenderableType:
    match block:
        case Table(columns, rows):
            return _table(columns, rows, now)
        case Sheet(entries):
            table = RichTable(box=None, show_header=False, pad_edge=False)
            table.add_column(style="bold", no_wrap=True)
            table.add_column(overflow="fold")
            for name, cell in entries:
                table.add_row(f"{name}:", _detailed(cell, now))
            return table
        case Marked(lines):
            return Text("\n").join(Text(line, style=_STYLES.get(word, "")) for word, line in lines)
        case str():
            return Text(block)


def _table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], now: datetime) -> RichTable:
    columns, rows = _without_common_places(columns, rows)
    cells = [[_cell(cell, now) for cell in row] for row in rows]
    least = [
        _least_width(column, [row[number].plain for row in cells]) for number, column in enumerate(columns)
    ]
    # Let the terminal wrap long lines: rich would cut ids, which makes them useless.
    table = RichTable(
        box=None, pad_edge=False, header_style="bold", min_width=sum(least) + _GAP * (len(columns) - 1)
    )
    for column, width in zip(columns, least, strict=True):
        table.add_column(
            column.title,
            no_wrap=column.kind is not Kind.TEXT,
            overflow="fold",
            min_width=width,
            justify="right" if column.kind is Kind.NUMBER else "left",
        )
    for row in cells:
        table.add_row(*row)
    return table


def _without_common_places(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]]
) -> tuple[Sequence[Column], Sequence[Sequence[Cell]]]:
    """Leave out namespace columns with the same value in all rows, to save width."""
    kept = [
        number
        for number, column in enumerate(columns)
        if column.kind is not Kind.PLACE or not rows or len({row[number] for row in rows}) > 1
    ]
    return [columns[number] for number in kept], [[row[number] for number in kept] for row in rows]


def _least_width(column: Column, cells: Sequence[str]) -> int:
    """Return the width that avoids breaks within words, except very long ones."""
    if column.kind is not Kind.TEXT:
        return max(map(len, [column.title, *cells]))
    words = [column.title, *(word for cell in cells for word in cell.split())]
    return min(max(map(len, words)), _LONGEST_WORD)


def _cell(cell: Cell, now: datetime) -> Text:
    """Return a Text: rich would parse brackets in a plain string as markup."""
    if isinstance(cell, datetime):
        return Text(ago(cell, now))
    text = written(cell)
    # The part before the comma selects the style: `live, leader` is styled as `live`.
    return Text(text, style=_STYLES.get(text.partition(",")[0], "dim" if cell is None else ""))


def _detailed(cell: Cell, now: datetime) -> Text:
    if isinstance(cell, datetime):
        return Text(f"{cell.astimezone():%Y-%m-%d %H:%M:%S %Z} ({ago(cell, now)})")
    return _cell(cell, now)
