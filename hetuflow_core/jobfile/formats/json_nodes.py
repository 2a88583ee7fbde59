"""JSON to nodes: everything with its place, numbers as they are written."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import Any, Final

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.fields.nodes import (
    CODE,
    DEEPEST,
    MOST_DIGITS,
    Budget,
    Node,
    Position,
    field_name,
    scalar_problem,
    shortened,
)

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")
_CONSTANTS: Final = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}
_NOT_JSON: Final = re.compile(r"-?Infinity|NaN")


class Places:
    """Line and column of an offset in a text."""

    def __init__(self, text: str) -> None:
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def __call__(self, offset: int) -> Position:
        line = bisect_right(self._lines, offset)
        return Position(line, offset - self._lines[line - 1] + 1)


def read_json(text: str, source: str) -> Node:
    places = Places(text)
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        position = Position(error.lineno, error.colno)
        raise unreadable(source, position, f"this is not JSON: {error.msg}; correct it.") from None
    except RecursionError:
        raise unreadable(source, None, "this is nested too deeply: flatten it.") from None
    except ValueError:
        pass  # an integer of thousands of digits, which is refused with its place
    reader = _JsonReader(text, source, places)
    node, _ = reader.value(reader.space(0), 0, None)
    if reader.faults:
        raise Invalid(f"{source or 'The text'} cannot be read.", code=CODE, faults=reader.faults)
    return node


class _JsonReader:
    """Reads what is known to be JSON, beside the constants that Python takes and JSON has not."""

    def __init__(self, text: str, source: str, places: Places) -> None:
        self.faults: list[Fault] = []
        self._text, self._source, self._places, self._budget = text, source, places, Budget()

    def space(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match is not None else at

    def value(self, at: int, depth: int, place: Position | None) -> tuple[Node, int]:
        """Return the value at an offset, and the offset behind it; `place` is that of its key."""
        position = place or self._places(at)
        if depth > DEEPEST:
            message = f"this is nested more than {DEEPEST} levels deep: flatten it."
            raise unreadable(self._source, position, message)
        first = self._text[at]
        if first == "{":
            return self._mapping(at, depth, position)
        if first == "[":
            return self._list(at, depth, position)
        value, written, end = self._scalar(at, first, position)
        self._spend(position, len(value) if isinstance(value, str) else 0)
        problem = scalar_problem(value)
        if problem is not None:
            self._note(position, f"{shortened(self._text[at:end])} {problem}")
        return Node(value, position, written), end

    def _scalar(self, at: int, first: str, position: Position) -> tuple[Any, str | None, int]:
        if first == '"':
            text, end = _DECODER.raw_decode(self._text, at)
            return text, None, end
        if wrong := _NOT_JSON.match(self._text, at):
            self._note(position, f"{wrong[0]} is not JSON: write a number or null.")
            return None, None, wrong.end()
        if first in _CONSTANTS:
            word, value = _CONSTANTS[first]
            return value, None, at + len(word)
        match = _NUMBER.match(self._text, at)
        if match is None:
            raise unreadable(self._source, position, "this is not JSON: correct it.")
        written = match[0]
        number = float(written) if match["fraction"] else int(written[:MOST_DIGITS])
        return number, written, match.end()

    def _mapping(self, at: int, depth: int, position: Position) -> tuple[Node, int]:
        self._spend(position, 0)
        entries: dict[str, Node] = {}
        at = self.space(at + 1)
        while self._text[at] != "}":
            place = self._places(at)
            key, at = _DECODER.raw_decode(self._text, at)
            at = self.space(self.space(at) + 1)  # behind the colon
            node, at = self.value(at, depth + 1, place)
            if key in entries:
                self._note(place, f'the key "{shortened(key)}" is given twice: keep one of them.')
            if (problem := scalar_problem(key)) is not None:
                self._note(place, f"the key {problem}")
            entries[key] = node
            at = self._behind_comma(at)
        return Node(entries, position), at + 1

    def _list(self, at: int, depth: int, position: Position) -> tuple[Node, int]:
        self._spend(position, 0)
        items = []
        at = self.space(at + 1)
        while self._text[at] != "]":
            node, at = self.value(at, depth + 1, None)
            items.append(node)
            at = self._behind_comma(at)
        return Node(tuple(items), position), at + 1

    def _behind_comma(self, at: int) -> int:
        at = self.space(at)
        return self.space(at + 1) if self._text[at] == "," else at

    def _spend(self, position: Position, characters: int) -> None:
        try:
            self._budget.spend(1, characters)
        except ValueError as error:
            raise unreadable(self._source, position, str(error)) from None

    def _note(self, position: Position, message: str) -> None:
        self.faults.append(Fault(field_name(self._source, "", position), message))


def unreadable(source: str, position: Position | None, message: str) -> Invalid:
    fault = Fault(field_name(source, "", position), message)
    return Invalid(f"{source or 'The text'} cannot be read.", code=CODE, faults=[fault])
