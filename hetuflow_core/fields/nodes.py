"""What a document holds, with the place of everything: the form all formats are read into.

Trees may share branches (YAML aliases), so whoever builds one counts what it would be written out in full.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias

from hetuflow_core.errors import Fault, Invalid

CODE: Final = "job.invalid"
DEEPEST: Final = 64
MOST_VALUES: Final = 100_000
# Twice the largest file: room for aliases that are used sensibly.
MOST_CHARACTERS: Final = 2 * 1024 * 1024
LARGEST_INTEGER: Final = 2**63 - 1
# A longer number is too large however it goes on, and long ones take long to convert.
MOST_DIGITS: Final = 100

_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_SHOWN: Final = 64

Scalar: TypeAlias = "str | int | float | bool | None"


class Position(NamedTuple):
    """Counted from 1, as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Node:
    """One value. The position of a mapping's value is that of its key: that is where people look."""

    value: Scalar | tuple[Node, ...] | Mapping[str, Node]
    position: Position | None = None
    written: str | None = None  # a number as its file writes it, where that is known: 1.10 is not 1.1


@dataclass(frozen=True, slots=True)
class WrittenNumber:
    """A number together with its text; what JSON and TOML are decoded to on the way to nodes."""

    value: int | float
    written: str


@dataclass(slots=True)
class Budget:
    """Counts values and characters as if nothing were shared: a small file must not unfold to a huge one."""

    values: int = 0
    characters: int = 0

    def spend(self, values: int, characters: int) -> None:
        self.values += values
        self.characters += characters
        if self.values > MOST_VALUES or self.characters > MOST_CHARACTERS:
            raise ValueError("the documents hold too much once aliases are followed: split them.")


def field_name(source: str, path: str, position: Position | None) -> str:
    """`jobs.yaml:12:3 run.command[0]`; over REST there is no file and the path alone is left."""
    where = f"{source}:{position.line}:{position.column}" if source and position else source
    return " ".join(part for part in (where, path) if part)


def key_path(path: str, key: str) -> str:
    if _PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(shortened(key), ensure_ascii=False)}]"


def item_path(path: str, index: int) -> str:
    return f"{path}[{index}]"


def shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def scalar_problem(value: Scalar) -> str | None:
    """Why a value cannot be kept: PostgreSQL's JSON takes no NUL, no half of a character and no infinity."""
    if isinstance(value, str):
        if "\0" in value:
            return "holds a NUL character: remove it."
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            return "holds half of a character (a lone surrogate): remove it."
    elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        return "is too large a number: write it as text, in quotes."
    elif isinstance(value, float) and not math.isfinite(value):
        return "is not a number that JSON can hold: write it as text, in quotes."
    return None


def node_of(value: Any, *, source: str, path: str, budget: Budget) -> Node:
    """Plain data, as decoded from JSON or TOML, as a tree without positions."""
    try:
        return _node_of(value, source, path, budget, depth=0)
    except ValueError as error:
        fault = Fault(field_name(source, path, None), str(error))
        raise Invalid("The documents cannot be read.", code=CODE, faults=[fault]) from None


def _node_of(value: Any, source: str, path: str, budget: Budget, depth: int) -> Node:
    if depth > DEEPEST:
        raise ValueError(f"is nested more than {DEEPEST} levels deep: flatten it.")
    budget.spend(1, len(value) if isinstance(value, str) else 0)
    if isinstance(value, WrittenNumber):
        return Node(_kept(value.value, source, path), written=value.written)
    if value is None or isinstance(value, (str, bool, int, float)):
        return Node(_kept(_as_written(value), source, path))
    if isinstance(value, (list, tuple)):
        return Node(
            tuple(
                _node_of(item, source, item_path(path, index), budget, depth + 1)
                for index, item in enumerate(value)
            )
        )
    if isinstance(value, Mapping):
        return Node(
            {
                _kept(key, source, path): _node_of(item, source, key_path(path, key), budget, depth + 1)
                for key, item in value.items()
            }
        )
    raise ValueError(f"holds a {type(value).__name__}, which JSON has no form for: write it as text.")


def _as_written(value: Scalar) -> Scalar:
    """A number of floating point again if it is one: PostgreSQL's JSON writes 1e30 with all its zeros."""
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        try:
            number = float(value)
        except OverflowError:
            return value
        return number if int(Decimal(repr(number))) == value else value
    return value


def _kept(value: Any, source: str, path: str) -> Any:
    problem = scalar_problem(value)
    if problem is not None:
        fault = Fault(field_name(source, path, None), problem)
        raise Invalid("The documents cannot be read.", code=CODE, faults=[fault])
    return value


def plain(node: Node) -> Any:
    """The value as plain data again."""
    if isinstance(node.value, Mapping):
        return {key: plain(item) for key, item in node.value.items()}
    if isinstance(node.value, tuple):
        return [plain(item) for item in node.value]
    return node.value
