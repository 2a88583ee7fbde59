"""Forms of the values that documents of many kinds have."""

from __future__ import annotations

import re
from typing import Final

from hetuflow_core.durations import format_size, parse_size
from hetuflow_core.errors import Invalid
from hetuflow_core.fields import json_schema
from hetuflow_core.fields.forms import Form, distinct, entries, matching, several, text_unless, whole
from hetuflow_core.fields.value_reader import ValueReader

NAME_PATTERN: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?")
LABEL_KEY: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?")
_LONGEST_LABEL: Final = 256

NAME: Final = matching(
    NAME_PATTERN,
    "lower-case letters, digits and, inside, also . _ - (128 characters at most)",
    summary="name",
)
NAMES: Final = several(NAME, distinct, alone=str, alone_schema=json_schema.matching(NAME_PATTERN))
PRIORITY: Final = whole(0, 1000)


def _label_fault(text: str) -> str | None:
    if len(text) <= _LONGEST_LABEL:
        return None
    return f"a label's value has at most {_LONGEST_LABEL} characters: shorten it."


def _label_name_fault(name: str) -> str | None:
    if LABEL_KEY.fullmatch(name):
        return None
    return "a label's name has letters, digits and inside also . _ / -: rename it."


LABELS: Final = entries(
    text_unless(_label_fault, {**json_schema.WORDS, "maxLength": _LONGEST_LABEL}, read=ValueReader.words),
    _label_name_fault,
    {"pattern": f"^(?:{LABEL_KEY.pattern})$"},
    summary="mapping of names to text",
)


def _size(given: ValueReader) -> int | None:
    text = given.words()
    if text is None:
        return None
    try:
        return parse_size(text)
    except Invalid as error:
        given.refuse(error.message)
        return None


SIZE: Final = Form(_size, json_schema.SIZE, format_size, summary="size in bytes")
