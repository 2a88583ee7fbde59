"""Files and request bodies to raw documents.

A file holds one document or several. YAML separates them with `---`. In every format a file may instead be
a list of documents, or a mapping with the single key `documents` that holds such a list; TOML, which has
neither separators nor lists at the top, writes several as `[[documents]]`.

Times stay text in every format, so that the same words mean the same everywhere.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any, Final, Literal, NoReturn, TypeAlias

from hetuflow_core.errors import Fault, Invalid, TooLarge
from hetuflow_core.jobfile.nodes import (
    CODE,
    MOST_DIGITS,
    Budget,
    Node,
    Position,
    WrittenNumber,
    field_name,
    item_path,
    node_of,
    shortened,
)
from hetuflow_core.jobfile.yaml_nodes import read_yaml

LARGEST_FILE: Final = 1024 * 1024

Format: TypeAlias = Literal["yaml", "toml", "json"]

_SUFFIXES: Final[dict[str, Format]] = {"yaml": "yaml", "yml": "yaml", "toml": "toml", "json": "json"}
_SEVERAL: Final = "documents"


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document that has been read and not yet looked at; `path` is its place in its file or request."""

    root: Node
    source: str = ""
    path: str = ""


def parse_documents(
    text: str,
    format: Format | None,  # noqa: A002 (the word users know it by)
    source: str,
) -> list[RawDocument]:
    """Read a file; without a format its name decides, and what has no telling name is read as YAML."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Invalid(f"{source or 'The text'} is not UTF-8: save it as UTF-8.", code=CODE) from None
    if size > LARGEST_FILE:
        raise TooLarge(
            f"{source or 'The text'} is larger than {LARGEST_FILE // 1024} KiB: split it into several files.",
            code="job.too_large",
        )
    chosen = format or _SUFFIXES.get(source.lower().rpartition(".")[2], "yaml")
    content = text.removeprefix("\ufeff")
    roots = read_yaml(content, source) if chosen == "yaml" else [_READERS[chosen](content, source)]
    documents = [document for root in roots for document in _split(RawDocument(root, source))]
    if not documents:
        raise Invalid(f"{source or 'The text'} holds no document: write one with kind: job.", code=CODE)
    return documents


def raw_document(value: Any, path: str = "") -> RawDocument:
    """A document that came as JSON, or out of the database; faults name its fields below `path`."""
    return RawDocument(node_of(value, source="", path=path, budget=Budget()), path=path)


def raw_documents(values: Iterable[Any], path: str = _SEVERAL) -> list[RawDocument]:
    """The documents of a request; faults name them `documents[0]` and so on."""
    budget = Budget()
    return [
        RawDocument(node_of(value, source="", path=place, budget=budget), path=place)
        for place, value in ((item_path(path, index), value) for index, value in enumerate(values))
    ]


def _split(document: RawDocument) -> list[RawDocument]:
    value, path = document.root.value, ""
    if isinstance(value, Mapping) and value.keys() == {_SEVERAL}:
        value, path = value[_SEVERAL].value, _SEVERAL
    if isinstance(value, tuple):
        return [
            RawDocument(item, document.source, item_path(path, index)) for index, item in enumerate(value)
        ]
    return [document]


def _read_json(text: str, source: str) -> Node:
    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON: write a number or null.")

    try:
        value = json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_int=lambda written: WrittenNumber(int(written[:MOST_DIGITS]), written),
            parse_float=lambda written: WrittenNumber(float(written), written),
            parse_constant=refuse_constant,
        )
    except json.JSONDecodeError as error:
        _refuse(source, Position(error.lineno, error.colno), f"this is not JSON: {error.msg}; correct it.")
    except RecursionError:
        _refuse(source, None, "this is nested too deeply: flatten it.")
    except ValueError as error:
        _refuse(source, None, str(error))
    return node_of(value, source=source, path="", budget=Budget())


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value] # add returns None, which is false
        raise ValueError(f'the key "{shortened(twice)}" is given twice: keep one of them.')
    return entries


def _read_toml(text: str, source: str) -> Node:
    try:
        value = tomllib.loads(text, parse_float=lambda written: WrittenNumber(float(written), written))
    except tomllib.TOMLDecodeError as error:
        _refuse(source, None, f"this is not TOML: {error}; correct it.")
    except RecursionError:
        _refuse(source, None, "this is nested too deeply: flatten it.")
    except ValueError:  # an integer of thousands of digits
        _refuse(source, None, "this holds a number that is too large: write it as text, in quotes.")
    return node_of(_times_as_text(value), source=source, path="", budget=Budget())


def _times_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _times_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_times_as_text(item) for item in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    return value


def _refuse(source: str, position: Position | None, message: str) -> NoReturn:
    fault = Fault(field_name(source, "", position), message)
    raise Invalid(f"{source or 'The text'} cannot be read.", code=CODE, faults=[fault])


_READERS: Final = {"json": _read_json, "toml": _read_toml}
