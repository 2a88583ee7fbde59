"""Convert texts of files and the environment to values of keys, and values back to text.

`raw_from_text` converts a text from the environment to the TOML type; then `accept` handles both sources.
Conversions do not quote the value in their messages; `refusal` adds it if it may be shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from hetuflow_core.durations import format_duration, parse_duration
from hetuflow_core.errors import Invalid
from hetuflow_core.runtime.config.keys import MASK, Bound, KeyKind, KeySpec, SecretText

_BOOLEANS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}
_DURATION_EXPECTED = 'a duration such as "500ms", "30s", "10m", "1h30m" or "2d"'
_LONGEST_SHOWN = 200
_LONGEST_INTEGER = 20


@dataclass(frozen=True, slots=True)
class Place:
    """The directories that relative paths and `~` refer to."""

    cwd: Path
    home: Path | None


def raw_from_text(spec: KeySpec, text: str) -> Any:
    if spec.optional and not text:
        return ""
    if spec.kind is KeyKind.INTEGER:
        if not re.fullmatch(rf"[+-]?[0-9]{{1,{_LONGEST_INTEGER}}}", text.strip()):
            raise Invalid("must be a whole number")
        return int(text)
    if spec.kind is KeyKind.BOOLEAN:
        if text.strip().lower() not in _BOOLEANS:
            raise Invalid("must be true or false (also 1/0, yes/no, on/off)")
        return _BOOLEANS[text.strip().lower()]
    if spec.kind is KeyKind.LIST:
        return _list_from_text(text)
    if spec.kind is KeyKind.MAP:
        return _map_from_text(text)
    return text


def _list_from_text(text: str) -> Any:
    if text.lstrip().startswith("["):
        return _json(text, "must be a JSON list or comma-separated")
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _map_from_text(text: str) -> Any:
    expected = "must be a JSON object or of the form name=value,name2=value2"
    if text.lstrip().startswith("{"):
        return _json(text, expected)
    pairs = [pair.partition("=") for pair in text.split(",")] if text.strip() else []
    if not all(equals for _, equals, _ in pairs):
        raise Invalid(expected)
    names = [name.strip() for name, _, _ in pairs]
    if len(set(names)) < len(names):
        raise Invalid("must not give a name twice")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _json(text: str, expected: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Invalid(expected) from None


def accept(spec: KeySpec, raw: Any, place: Place) -> Any:
    """Return the value in the declared type; raise Invalid if it is outside of its limits."""
    if spec.optional and raw == "":
        return None
    value = _typed(spec, raw, place)
    check_limits(spec, value)
    return value


def _typed(spec: KeySpec, raw: Any, place: Place) -> Any:  # noqa: PLR0911 - one return per kind
    match spec.kind:
        case KeyKind.TEXT:
            return _text(raw)
        case KeyKind.SECRET:
            return SecretText(_text(raw))
        case KeyKind.INTEGER:
            # bool is a subclass of int, but `port = true` is a mistake
            return raw if type(raw) is int else _refuse("must be a whole number")
        case KeyKind.BOOLEAN:
            return raw if isinstance(raw, bool) else _refuse("must be true or false")
        case KeyKind.DURATION:
            return _duration(raw)
        case KeyKind.PATH:
            return _path(_text(raw), place)
        case KeyKind.CHOICE:
            chosen = raw.strip().lower() if isinstance(raw, str) else None
            return chosen if chosen in spec.choices else _refuse(f"must be {one_of(spec.choices)}")
        case KeyKind.LIST:
            return _list(raw)
        case KeyKind.MAP:
            return _map(raw)


def _refuse(message: str) -> Any:
    raise Invalid(message)


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise Invalid("must be a text in quotes")
    if not raw.strip():
        raise Invalid("must not be empty")
    # Python represents invalid UTF-8 in the environment as lone surrogates.
    if not raw.isascii() and any("\ud800" <= character <= "\udfff" for character in raw):
        raise Invalid("must be UTF-8")
    return raw


def _duration(raw: Any) -> timedelta:
    try:
        return parse_duration(raw) if isinstance(raw, str) else _refuse("")
    except Invalid:
        raise Invalid(f"must be {_DURATION_EXPECTED}") from None


def _path(text: str, place: Place) -> Path:
    if "\0" in text:
        raise Invalid("must be a path")
    path = Path(text)
    if path.parts[:1] == ("~",):
        if place.home is None:
            raise Invalid("must not start with ~: HOME is not set")
        path = place.home.joinpath(*path.parts[1:])
    return place.cwd / path


def _list(raw: Any) -> tuple[str, ...]:
    if not isinstance(raw, list) or not all(isinstance(item, str) for item in raw):
        raise Invalid("must be a list of texts")
    if not all(item.strip() for item in raw):
        raise Invalid("must not have an empty item")
    return tuple(raw)


def _map(raw: Any) -> Mapping[str, str]:
    if not isinstance(raw, dict) or not all(isinstance(value, str) for value in raw.values()):
        raise Invalid("must be a table whose values are texts in quotes")
    if not all(name.strip() for name in raw):
        raise Invalid("must not have an empty name")
    return dict(raw)


def check_limits(spec: KeySpec, value: Any) -> None:
    key = spec.key
    if (key.least is not None and value < key.least) or (key.most is not None and value > key.most):
        raise Invalid(f"must be {limits(spec)}")
    if key.min_length and len(_bare(value)) < key.min_length:
        raise Invalid(f"must have at least {key.min_length} characters")


def rule_fault(spec: KeySpec, value: Any) -> str | None:
    """Apply the rule of the key to a value of the right type; return the fault or None."""
    return spec.key.rule(_bare(value)) if spec.key.rule is not None and value is not None else None


def _bare(value: Any) -> Any:
    return value.reveal() if isinstance(value, SecretText) else value


def limits(spec: KeySpec) -> str:
    """Describe the accepted range; empty if the key has no limits."""
    least, most = spec.key.least, spec.key.most
    if least is not None and most is not None:
        return f"between {_bound(least)} and {_bound(most)}"
    if least is not None:
        return f"at least {_bound(least)}"
    return f"at most {_bound(most)}" if most is not None else ""


def _bound(bound: Bound) -> str:
    return format_duration(bound) if isinstance(bound, timedelta) else str(bound)


def one_of(choices: tuple[str, ...]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]


def refusal(error: Invalid, raw: Any, *, showable: bool) -> str:
    """Return the message about an invalid value, with the value if it helps and may be shown."""
    helps = error.message.startswith("must be ")
    return f"{error.message}, not {shown(raw)}" if showable and helps else error.message


def shown(raw: Any) -> str:
    """Format an invalid value for its message; never called for secrets."""
    if isinstance(raw, str):
        cut = raw if len(raw) <= _LONGEST_SHOWN else f"{raw[:_LONGEST_SHOWN]}…"
        return json.dumps(cut, ensure_ascii=False).encode(errors="backslashreplace").decode()
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, int | float):
        return str(raw)
    if isinstance(raw, list):
        return "a list"
    return "a table" if isinstance(raw, dict) else "a date or time"


def plain(value: Any) -> Any:
    """Convert a value to JSON and TOML types, with masked secrets."""
    if isinstance(value, SecretText):
        return MASK
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def toml_literal(value: Any) -> str:
    """Format a plain value as TOML."""
    if isinstance(value, list):
        return f"[{', '.join(toml_literal(item) for item in value)}]"
    if isinstance(value, dict):
        pairs = ", ".join(f"{_toml_name(name)} = {toml_literal(item)}" for name, item in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, str):
        # JSON strings are valid TOML strings except for DEL, which TOML requires to be escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _toml_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_literal(name)
