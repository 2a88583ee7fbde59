"""What the filters and tests of templates do, and what every value of an expression is held to."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from jinja2 import Undefined
from jinja2.filters import do_default

# What a server's memory may be asked to hold for one intermediate text.
LONGEST_INTERMEDIATE: Final = 1024 * 1024
LARGEST_INTEGER: Final = 2**63 - 1
# Texts never hold NUL (documents with one are refused), so delimiters that begin with it never occur: `{#` is
# what bash writes for a length (`${#list[@]}`) and must stay text.
NEVER: Final = "\0"


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def bounded(number: int | float) -> int | float:  # noqa: PYI041 (both matter here: only integers grow)
    if isinstance(number, int) and abs(number) > LARGEST_INTEGER:
        raise ValueError("a result is too large")
    return number


def check_length(length: int) -> None:
    if length > LONGEST_INTERMEDIATE:
        raise ValueError(f"a result is longer than {LONGEST_INTERMEDIATE // 1024} KiB")


def as_text(value: Any) -> str:
    text = value if isinstance(value, str) else as_json(value)
    if NEVER in text:
        raise ValueError("a value holds a NUL character")
    return text


def as_json(value: Any) -> str:
    if isinstance(value, Undefined):
        str(value)  # raises, naming what is missing
    pieces: list[str] = []
    length = 0
    # Piece by piece: the same value listed many times is small in memory and large as text.
    for piece in json.JSONEncoder(ensure_ascii=False, allow_nan=False).iterencode(value):
        length += len(piece)
        check_length(length)
        pieces.append(piece)
    return "".join(pieces)


def _join(value: Any, separator: str = "") -> str:
    if not isinstance(value, (list, tuple)) or not isinstance(separator, str):
        _wrong_input("join", "a list, and text between its items")
    items = [as_text(item) for item in value]
    check_length(sum(map(len, items)) + len(separator) * len(items))
    return separator.join(items)


def _length(value: Any) -> int:
    if not isinstance(value, (str, list, tuple, Mapping)):
        _wrong_input("length", "text, a list or a mapping")
    return len(value)


def _first(value: Any) -> Any:
    return _sequence("first", value)[0]


def _last(value: Any) -> Any:
    return _sequence("last", value)[-1]


def _sequence(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, (str, list, tuple)) or not value:
        _wrong_input(name, "text or a list that is not empty")
    return value


def _int(value: Any) -> int:
    if not is_number(value) and not isinstance(value, str):
        _wrong_input("int", "a number, or text that is one")
    return int(bounded(int(value)))


def _float(value: Any) -> float:
    if not is_number(value) and not isinstance(value, str):
        _wrong_input("float", "a number, or text that is one")
    return float(value)


def _wrong_input(name: str, expected: str) -> NoReturn:
    raise TypeError(f"the filter {name} needs {expected}")


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "d": do_default,
    "default": do_default,
    "first": _first,
    "float": _float,
    "int": _int,
    "join": _join,
    "last": _last,
    "length": _length,
    "lower": lambda value: as_text(value).lower(),
    "quote": lambda value: shlex.quote(as_text(value)),  # for `bash -c`: one word, whatever it holds
    "string": as_text,
    "tojson": as_json,
    "trim": lambda value: as_text(value).strip(),
    "upper": lambda value: as_text(value).upper(),
}
TESTS: Final[dict[str, Callable[..., bool]]] = {
    "boolean": lambda value: isinstance(value, bool),
    "defined": lambda value: not isinstance(value, Undefined),
    "mapping": lambda value: isinstance(value, Mapping),
    "none": lambda value: value is None,
    "number": is_number,
    "sequence": lambda value: isinstance(value, (list, tuple)),
    "string": lambda value: isinstance(value, str),
    "undefined": lambda value: isinstance(value, Undefined),
}
