"""TOML to nodes: the standard library reads the values, and a scan of the same text finds their places."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, time
from typing import Any, Final, TypeAlias

from hetuflow_core.fields.nodes import Budget, Node, Position, WrittenNumber, node_of
from hetuflow_core.jobfile.formats.json_nodes import Places, unreadable

Path: TypeAlias = "tuple[str | int, ...]"

_PLACE: Final = re.compile(r"\(at line (\d+), column (\d+)\)")
_GAP: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK: Final = re.compile(r"[ \t]*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_SIMPLE: Final = re.compile(r"[^,\]}#\n]*")
# From the longest: three quotes begin no empty text.
_TEXTS: Final = (
    re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    re.compile(r"'''(?:[^']|'(?!''))*'{3,5}", re.DOTALL),
    re.compile(r'"(?:[^"\\]|\\.)*"'),
    re.compile(r"'[^']*'"),
)


def read_toml(text: str, source: str) -> Node:
    try:
        value = tomllib.loads(text, parse_float=lambda written: WrittenNumber(float(written), written))
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        found = _PLACE.search(said)
        position = Position(int(found[1]), int(found[2])) if found else Places(text)(len(text))
        sentence = said.partition(" (at ")[0]
        raise unreadable(source, position, f"this is not TOML: {sentence}; correct it.") from None
    except RecursionError:
        raise unreadable(source, None, "this is nested too deeply: flatten it.") from None
    except ValueError:  # an integer of thousands of digits
        message = "this holds a number that is too large: write it as text, in quotes."
        raise unreadable(source, None, message) from None
    node = node_of(_times_as_text(value), source=source, path="", budget=Budget())
    return _placed(node, (), _Scan(text.replace("\r\n", "\n")).places())


def _placed(node: Node, path: Path, places: Mapping[Path, Position]) -> Node:
    value = node.value
    if isinstance(value, Mapping):
        value = {key: _placed(item, (*path, key), places) for key, item in value.items()}
    elif isinstance(value, tuple):
        value = tuple(_placed(item, (*path, index), places) for index, item in enumerate(value))
    return replace(node, value=value, position=places.get(path, Position(1, 1) if not path else None))


class _Scan:
    """Finds the places of keys and items in a text that is known to be TOML."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._position = text, 0, Places(text)
        self._places: dict[Path, Position] = {}
        # The last item of each array of tables.
        self._last: dict[Path, int] = {}

    def places(self) -> dict[Path, Position]:
        table: Path = ()
        self._pass(_GAP)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._entry(table)
            self._pass(_GAP)
        return self._places

    def _header(self) -> Path:
        position = self._position(self._at)
        repeated = self._text.startswith("[[", self._at)
        self._at += 2 if repeated else 1
        *above, last = self._key()
        self._at = self._text.index("]", self._at) + (2 if repeated else 1)
        path = (*self._resolved((), above, position), last)
        self._places.setdefault(path, position)
        if repeated:
            self._last[path] = self._last.get(path, -1) + 1
            path = (*path, self._last[path])
            self._places[path] = position
            return path
        return self._resolved((), [*above, last], position)

    def _resolved(self, start: Path, parts: list[str], position: Position) -> Path:
        path = start
        for part in parts:
            path = (*path, part)
            self._places.setdefault(path, position)
            if path in self._last:
                path = (*path, self._last[path])
        return path

    def _entry(self, table: Path) -> None:
        position = self._position(self._at)
        path = self._resolved(table, self._key(), position)
        self._at = self._text.index("=", self._at) + 1
        self._pass(_BLANK)
        self._value(path)

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._pass(_BLANK)
            start = self._at
            quoted = self._text[start] in "\"'"
            if not (quoted and self._skip_text()):
                self._pass(_BARE)
            written = self._text[start : self._at]
            parts.append(next(iter(tomllib.loads(f"{written}=1"))) if quoted else written)
            self._pass(_BLANK)
            if self._text[self._at] != ".":
                return parts
            self._at += 1

    def _value(self, path: Path) -> None:
        match self._text[self._at]:
            case "[":
                self._list(path)
            case "{":
                self._table(path)
            case '"' | "'":
                self._skip_text()
            case _:
                self._pass(_SIMPLE)

    def _list(self, path: Path) -> None:
        self._at += 1
        self._pass(_GAP)
        index = 0
        while self._text[self._at] != "]":
            self._places[(*path, index)] = self._position(self._at)
            self._value((*path, index))
            self._behind_comma()
            index += 1
        self._at += 1

    def _table(self, path: Path) -> None:
        self._at += 1
        self._pass(_GAP)
        while self._text[self._at] != "}":
            self._entry(path)
            self._behind_comma()
        self._at += 1

    def _behind_comma(self) -> None:
        self._pass(_GAP)
        if self._text[self._at] == ",":
            self._at += 1
            self._pass(_GAP)

    def _skip_text(self) -> bool:
        for form in _TEXTS:
            if (match := form.match(self._text, self._at)) is not None:
                self._at = match.end()
                return True
        return False

    def _pass(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match is not None else self._at


def _times_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _times_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_times_as_text(item) for item in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    return value
