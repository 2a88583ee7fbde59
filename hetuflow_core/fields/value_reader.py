"""What a document gives at one place, and the questions that can be asked of it.

Every question answers with a value of the right type, or notes a fault and answers None; reading goes on, so
that all faults of all documents are found at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from hetuflow_core.durations import format_duration, parse_duration
from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.fields.nodes import (
    Node,
    Position,
    Scalar,
    field_name,
    item_path,
    key_path,
    plain,
    shortened,
)

# With positions, so that they can be told in the order of the file.
Faults: TypeAlias = "list[tuple[Position | None, Fault]]"

T = TypeVar("T")
C = TypeVar("C", bound=StrEnum)

_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TemplateScope:
    """Which names templates may use in a part of a document, and all that were read there."""

    names: tuple[str, ...]
    texts: list[tuple[ValueReader, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ValueReader:
    node: Node
    source: str
    path: str
    faults: Faults
    scope: TemplateScope | None = None

    def within(self, scope: TemplateScope) -> ValueReader:
        return replace(self, scope=scope)

    def quietly(self) -> ValueReader:
        """Reads the same again; its faults have been noted already."""
        return replace(self, faults=[])

    def refuse(self, message: str) -> None:
        position = self.node.position
        self.faults.append((position, Fault(field_name(self.source, self.path, position), message)))

    def is_empty(self) -> bool:
        """Nothing is said: null, an empty list, or a mapping of such values."""
        return _is_empty(self.node)

    def text(self) -> str | None:
        value = self.node.value
        if not isinstance(value, str):
            self.must_be("text")
            return None
        return value

    def words(self) -> str | None:
        """Text; numbers count as they are written: `[sleep, 5]` and `VERSION: 1.10` mean what they show."""
        value = self.node.value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self.node.written or str(value)
        if isinstance(value, str):
            return value
        self.must_be("text", "put it in quotes" if isinstance(value, bool) or value is None else "")
        return None

    def matching(self, pattern: re.Pattern[str], expected: str) -> str | None:
        text = self.words()
        if text is not None and not pattern.fullmatch(text):
            self.refuse(f'"{shortened(text)}" is not allowed here: use {expected}.')
            return None
        return text

    def integer(self, low: int, high: int) -> int | None:
        value = self.node.value
        if not isinstance(value, int) or isinstance(value, bool):
            self.must_be("a whole number")
            return None
        if not low <= value <= high:
            self.refuse(f"must be between {low} and {high}, not {value}.")
            return None
        return value

    def number(self, low: float, high: float) -> float | None:
        value = self.node.value
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            self.must_be("a number")
            return None
        if not low <= value <= high:
            self.refuse(f"must be between {low} and {high}, not {value}.")
            return None
        return float(value)

    def boolean(self) -> bool | None:
        value = self.node.value
        if not isinstance(value, bool):
            self.must_be("true or false")
            return None
        return value

    def choice(self, options: type[C]) -> C | None:
        text = self.text()
        if text is None:
            return None
        values = [option.value for option in options]
        if text not in values:
            hint = did_you_mean(text, values) or f": use {listed(values)}."
            self.refuse(f'"{shortened(text)}" is not a known value{hint}')
            return None
        return options(text)

    def duration(self, low: timedelta, high: timedelta) -> timedelta | None:
        text = self.words()
        if text is None:
            return None
        try:
            duration = parse_duration(text)
        except Invalid as error:
            self.refuse(error.message)
            return None
        if not low <= duration <= high:
            self.refuse(f"must be between {format_duration(low)} and {format_duration(high)}, not {text}.")
            return None
        if duration % _MILLISECOND:
            self.refuse("must be a whole number of milliseconds: round it.")
            return None
        return duration

    def items(self) -> list[ValueReader] | None:
        if not isinstance(self.node.value, tuple):
            self.must_be("a list")
            return None
        return [
            ValueReader(item, self.source, item_path(self.path, index), self.faults, self.scope)
            for index, item in enumerate(self.node.value)
        ]

    def entry(self, key: str, node: Node) -> ValueReader:
        """The value that the mapping has under a key."""
        return ValueReader(node, self.source, key_path(self.path, key), self.faults, self.scope)

    def find(self, *keys: str) -> ValueReader | None:
        """The value below these keys, if the document has it."""
        found = self
        for key in keys:
            content = found.node.value
            if not isinstance(content, Mapping) or key not in content:
                return None
            found = found.entry(key, content[key])
        return found

    def entries(self) -> dict[str, ValueReader] | None:
        """A mapping whose keys are the user's."""
        if not isinstance(self.node.value, Mapping):
            self.must_be("a mapping")
            return None
        return {key: self.entry(key, node) for key, node in self.node.value.items()}

    def json_object(self) -> dict[str, Any] | None:
        value = plain(self.node)
        if not isinstance(value, dict):
            self.must_be("a mapping")
            return None
        return value

    def must_be(self, expected: str, remedy: str = "") -> None:
        self.refuse(f"must be {expected}, not {_kind(self.node.value)}{f': {remedy}' if remedy else ''}.")


def in_file_order(faults: Faults) -> list[Fault]:
    return [fault for _, fault in sorted(faults, key=lambda noted: noted[0] or Position(0, 0))]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), 1)
    return f': did you mean "{close[0]}"?' if close else ""


def listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _is_empty(node: Node) -> bool:
    if isinstance(node.value, Mapping):
        return all(_is_empty(item) for item in node.value.values())
    if isinstance(node.value, tuple):
        return not node.value
    return node.value is None


def _kind(value: Scalar | tuple[Node, ...] | Mapping[str, Node]) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {shortened(str(value))}"
    if isinstance(value, str):
        return f'the text "{shortened(value)}"'
    return "a list" if isinstance(value, tuple) else "a mapping"
