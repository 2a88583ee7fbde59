"""What commands show to people at a terminal: colour, and times as they are felt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TextIO

from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from hetuflow_server.cli.layout import Block, Cell, Column, Kind, Marked, Sheet, Table, ago, written

_STYLES: Final[Mapping[str, str]] = {
    "succeeded": "green",
    "online": "green",
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
    "skipped": "dim",
    "offline": "dim",
}

_WIDEST: Final = 10_000


def show(blocks: Sequence[Block], *, now: datetime, file: TextIO) -> None:
    console = Console(file=file, highlight=False)
    for number, block in enumerate(blocks):
        if number:
            console.print()
        _print(console, _renderable(block, now))


def _print(console: Console, renderable: RenderableType) -> None:
    # The terminal wraps what does not fit; rich would cut ids, and an id that is cut is useless.
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
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column.title,
            no_wrap=column.kind is not Kind.TEXT,
            overflow="fold",
            justify="right" if column.kind is Kind.NUMBER else "left",
        )
    for row in rows:
        table.add_row(*(_cell(cell, now) for cell in row))
    return table


def _cell(cell: Cell, now: datetime) -> Text:
    """A Text, since rich would read a plain string's brackets as markup."""
    if isinstance(cell, datetime):
        return Text(ago(cell, now))
    text = written(cell)
    return Text(text, style=_STYLES.get(text, "dim" if cell is None else ""))


def _detailed(cell: Cell, now: datetime) -> Text:
    if isinstance(cell, datetime):
        return Text(f"{cell.astimezone():%Y-%m-%d %H:%M:%S %Z} ({ago(cell, now)})")
    return _cell(cell, now)
