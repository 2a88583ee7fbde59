"""Blocks of human-readable output, and their plain text form without a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import TypeAlias

Cell: TypeAlias = str | int | datetime | None


class Kind(Enum):
    TEXT = auto()
    # Never wrapped or cut, so that it can be copied.
    ID = auto()
    STATUS = auto()
    TIME = auto()
    NUMBER = auto()
    # A namespace: left out on a terminal if all rows have the same value.
    PLACE = auto()


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    kind: Kind = Kind.TEXT


@dataclass(frozen=True, slots=True)
class Table:
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class Sheet:
    """The fields of one object."""

    entries: Sequence[tuple[str, Cell]]


@dataclass(frozen=True, slots=True)
class Marked:
    """Lines, each with the word that selects its colour on a terminal, such as `created`."""

    lines: Sequence[tuple[str, str]]


Block: TypeAlias = Table | Sheet | Marked | str


def plain(blocks: Sequence[Block]) -> str:
    """Aligned text without colour: for files and other programs. Times are absolute."""
    return "\n\n".join("\n".join(_plain_lines(block)) for block in blocks)


def _plain_lines(block: Block) -> list[str]:
    match block:
        case Table(columns, rows):
            shown = [[column.title for column in columns], *([written(cell) for cell in row] for row in rows)]
            numbers = [column.kind is Kind.NUMBER for column in columns]
            return _aligned(shown, numbers)
        case Sheet(entries):
            return _aligned([[f"{name}:", written(cell)] for name, cell in entries], [False, False])
        case Marked(lines):
            return [line for _, line in lines]
        case str():
            return block.splitlines()


def _aligned(rows: Sequence[Sequence[str]], to_the_right: Sequence[bool]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides: list[Callable[[str, int], str]] = [str.rjust if right else str.ljust for right in to_the_right]
    return [
        "  ".join(side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)).rstrip()
        for row in rows
    ]


def written(cell: Cell) -> str:
    """Format a cell on one line; control characters are replaced."""
    if cell is None or cell == "":
        return "-"
    if isinstance(cell, datetime):
        return cell.isoformat(timespec="seconds").replace("+00:00", "Z")
    text = " ".join(str(cell).split())
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def ago(at: datetime, now: datetime) -> str:
    """Format a relative time with one unit, such as `5m ago` or `in 2h`."""
    distance = now - at
    text = _rough(abs(distance))
    if text == "0s":
        return "now"
    return f"{text} ago" if distance > timedelta(0) else f"in {text}"


def _rough(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        # Use a unit from its second multiple on: `90m` is more precise than `1h`.
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
