"""YAML to nodes: the values of YAML 1.2, the anchors and merge keys people use, and nothing that runs code.

Built from the parser's events, because a loader would lose the positions, take `on:` for true and follow
aliases without counting. Keys are always text: what matters is how they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.fields.nodes import (
    CODE,
    DEEPEST,
    MOST_DIGITS,
    Budget,
    Node,
    Position,
    Scalar,
    field_name,
    scalar_problem,
    shortened,
)

# libyaml where PyYAML was built with it; the events are the same, an order of magnitude sooner.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_TAGS: Final = ("!", "tag:yaml.org,2002:str")
_MERGE: Final = "<<"

_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Numbers do not begin with a needless zero: YAML 1.1 takes 012 for ten, YAML 1.2 for twelve, and whoever
# writes it means a text such as a postal code.
_DECIMAL: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")
PREFIXED: Final = re.compile(r"0o(?P<octal>[0-7]+)|0x(?P<hex>[0-9a-fA-F]+)")
FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def read_yaml(text: str, source: str) -> list[Node]:
    """Every document that is not empty."""
    reader = _YamlReader(text, source)
    try:
        documents = list(reader.documents())
    except _Stop:
        pass  # noted where it happened
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = Position(mark.line + 1, mark.column + 1) if mark else None
        reader.note(position, f"this is not YAML: {error.problem or error.context}; correct the syntax.")
    except yaml.YAMLError as error:
        reader.note(None, f"this is not YAML: {str(error).splitlines()[0]}; correct the syntax.")
    else:
        if not reader.faults:
            return documents
    raise Invalid(f"{source or 'The text'} cannot be read.", code=CODE, faults=reader.faults)


@dataclass(frozen=True, slots=True)
class _Anchored:
    node: Node
    values: int
    characters: int


class _Stop(Exception):
    """Reading on makes no sense."""


class _YamlReader:
    def __init__(self, text: str, source: str) -> None:
        self.faults: list[Fault] = []
        self._events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
        self._source = source
        self._anchors: dict[str, _Anchored] = {}
        self._budget = Budget()

    def note(self, position: Position | None, message: str) -> None:
        self.faults.append(Fault(field_name(self._source, "", position), message))

    def documents(self) -> Iterator[Node]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
                node = self._node(next(self._events), depth=0)
                if node.value is not None:
                    yield node

    def _node(self, event: Any, depth: int) -> Node:
        if depth > DEEPEST:
            raise self._stop(event, f"this is nested more than {DEEPEST} levels deep: flatten it")
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event)
        values, characters = self._budget.values, self._budget.characters
        self._spend(event, 1, len(event.value) if isinstance(event, yaml.ScalarEvent) else 0)
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        else:
            self._refuse_tag(event)
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            node = self._mapping(event, depth) if is_mapping else self._sequence(event, depth)
        if event.anchor is not None:
            # Known only once it is complete, so that nothing can contain itself.
            self._anchors[event.anchor] = _Anchored(
                node, self._budget.values - values, self._budget.characters - characters
            )
        return node

    def _aliased(self, event: Any) -> Node:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise self._stop(event, f'the alias "*{shortened(event.anchor)}" names no anchor above it')
        self._spend(event, anchored.values, anchored.characters)
        return replace(anchored.node, position=_position(event))

    def _sequence(self, event: Any, depth: int) -> Node:
        items = []
        while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(item, depth + 1))
        return Node(tuple(items), _position(event))

    def _mapping(self, event: Any, depth: int) -> Node:
        entries: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        while not isinstance(key_event := next(self._events), yaml.MappingEndEvent):
            key = self._key(key_event)
            node = replace(self._node(next(self._events), depth + 1), position=_position(key_event))
            if key == _MERGE and key_event.implicit[0]:
                for name, value in self._merged(node).items():
                    merged.setdefault(name, value)
            elif key in entries:
                self.note(node.position, f'the key "{shortened(key)}" is given twice: keep one of them.')
            else:
                entries[key] = node
        # What a mapping says itself wins over what it merges in.
        return Node({**merged, **entries}, _position(event))

    def _merged(self, node: Node) -> dict[str, Node]:
        sources = node.value if isinstance(node.value, tuple) else (node,)
        merged: dict[str, Node] = {}
        for source in sources:
            if isinstance(source.value, dict):
                merged = {**source.value, **merged}
            else:
                self.note(
                    node.position, "<< takes a mapping or a list of mappings: write an alias such as *base."
                )
        return merged

    def _key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent) or not event.value:
            raise self._stop(event, "a key must be text")
        self._spend(event, 0, len(event.value))
        self._check(event, event.value)
        return str(event.value)

    def _scalar(self, event: Any) -> Node:
        position = _position(event)
        if event.tag is not None and event.tag not in _TEXT_TAGS:
            self._refuse_tag(event)
        if event.tag is not None or not event.implicit[0]:
            self._check(event, event.value)
            return Node(event.value, position)
        value = _resolved(event.value)
        self._check(event, value)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return Node(value, position, written=event.value if is_number else None)

    def _check(self, event: Any, value: Scalar) -> None:
        problem = scalar_problem(value)
        if problem is not None:
            self.note(_position(event), f'"{shortened(event.value)}" {problem}')

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None and event.tag != "!":
            tag = shortened(event.tag)
            self.note(_position(event), f'the tag "{tag}" has no meaning here: remove it.')

    def _spend(self, event: Any, values: int, characters: int) -> None:
        try:
            self._budget.spend(values, characters)
        except ValueError as error:
            raise self._stop(event, str(error).rstrip(".")) from None

    def _stop(self, event: Any, message: str) -> _Stop:
        self.note(_position(event), f"{message}.")
        return _Stop(message)


def _position(event: Any) -> Position:
    return Position(event.start_mark.line + 1, event.start_mark.column + 1)


def _resolved(text: str) -> Scalar:
    """A plain scalar by YAML 1.2's core schema: `yes`, `on` and dates are text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _DECIMAL.fullmatch(text):
        return int(text[:MOST_DIGITS])
    if match := PREFIXED.fullmatch(text):
        return int(match["octal"], 8) if match["octal"] else int(match["hex"], 16)
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    if FLOAT.fullmatch(text):
        return float(text)
    return text
