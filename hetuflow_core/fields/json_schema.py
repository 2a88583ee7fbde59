"""Parts of the JSON Schema of a document.

A key that is null is as good as absent, so every key that is not required may be null.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias

Schema: TypeAlias = "dict[str, Any]"

REF: Final = "#/$defs/"

_DURATION: Final = r"^(?=.*[0-9])\s*([0-9.]+d)?([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?([0-9.]+ms)?\s*$"
_SIZE: Final = r"^\s*[0-9]+(\.[0-9]+)?([kKMGTP]i?)?B?\s*$"
_INSTANT: Final = r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?([Zz]|[+-]\d\d:\d\d)$"

TEXT: Final[Schema] = {"type": "string"}
NULL: Final[Schema] = {"type": "null"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
ANYTHING: Final[Schema] = {}
OBJECT: Final[Schema] = {"type": "object"}
# Numbers count as they are written where a text is meant.
WORDS: Final[Schema] = {"type": ["string", "number"]}
TEMPLATE: Final[Schema] = {**WORDS, "description": "A template: {{ … }} is replaced when the task runs."}
DURATION: Final[Schema] = {
    "type": "string",
    "pattern": _DURATION,
    "description": "A duration such as 500ms, 30s, 10m, 1h30m or 2d.",
}
SIZE: Final[Schema] = {
    "anyOf": [{"type": "string", "pattern": _SIZE}, {"type": "number", "minimum": 0}],
    "description": "A size in bytes such as 4096, 512Mi or 10MB.",
}
INSTANT: Final[Schema] = {
    "type": "string",
    "pattern": _INSTANT,
    "description": "An instant with an offset, such as 2026-12-31T23:59:00+01:00.",
}
# Nothing is said: what may stand where the key has no meaning.
EMPTY: Final[Schema] = {"$ref": "#/$defs/empty"}
DEFINITIONS: Final[Mapping[str, Schema]] = {
    "empty": {
        "anyOf": [
            NULL,
            {"type": "array", "maxItems": 0},
            {"type": "object", "additionalProperties": {"$ref": "#/$defs/empty"}},
        ]
    }
}


def described(schema: Mapping[str, Any], description: str) -> Schema:
    return {**schema, "description": description}


def key_schema(schema: Schema, doc: str, *, required: bool) -> Schema:
    """The schema of a key's value, with what the key means before what the form says of itself."""
    bare = {key: value for key, value in schema.items() if key != "description"}
    description = " ".join(text for text in (doc, schema.get("description", "")) if text)
    return {**(bare if required else optional(bare)), "description": description}


def object_of(
    properties: Mapping[str, Schema], *, required: Collection[str] = (), rules: Iterable[Schema] = ()
) -> Schema:
    """A mapping whose keys are ours; `rules` say which of them go together."""
    said = list(rules)
    return {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
        **({"required": sorted(required)} if required else {}),
        **({"allOf": said} if said else {}),
    }


def optional(schema: Schema) -> Schema:
    if schema in (ANYTHING, EMPTY):
        return schema
    return {"anyOf": [schema, NULL]}


def several(item: Schema, *, least: int = 0, most: int | None = None) -> Schema:
    bounds = {"minItems": least} if least else {}
    return {"type": "array", "items": item, **bounds, **({"maxItems": most} if most is not None else {})}


def whole(low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def choice(options: type[StrEnum] | Collection[str]) -> Schema:
    return {"enum": [str(option) for option in options]}


def matching(pattern: re.Pattern[str] | str, *, numbers: bool = False) -> Schema:
    """Text of this form; with `numbers`, also a number whose digits are such a text."""
    source = pattern if isinstance(pattern, str) else pattern.pattern
    text = {"type": "string", "pattern": f"^(?:{source})$"}
    negative = re.fullmatch(source, "-1") is not None
    number = {"type": "number", **({} if negative else {"minimum": 0})}
    return {"anyOf": [text, number]} if numbers else text


def given(*keys: str) -> Schema:
    """All of these keys say something."""
    return {"required": list(keys), "properties": {key: {"not": NULL} for key in keys}}


def absent(*keys: str) -> Schema:
    return {"not": {"anyOf": [given(key) for key in keys]}}


def one_of(*keys: str) -> Schema:
    """Exactly one of these keys says something."""
    return {"oneOf": [given(key) for key in keys]}


def at_most_one(*keys: str) -> Schema:
    return {"oneOf": [absent(*keys), *(given(key) for key in keys)]}


def only_with(key: str, *others: str) -> Schema:
    """The key says something only beside one of the others."""
    return {"if": given(key), "then": {"anyOf": [given(other) for other in others]}}


def silent(keys: Iterable[str]) -> Schema:
    """None of these keys says anything."""
    return {"properties": dict.fromkeys(keys, EMPTY)}


def when(condition: Schema, then: Schema) -> Schema:
    return {"if": condition, "then": then}
