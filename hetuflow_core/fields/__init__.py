"""Fields: one definition of each key of a document, from which everything else about the key follows.

    class LimitSpec(msgspec.Struct, frozen=True, kw_only=True):
        max: Annotated[int, whole(0, 1000), Key("Most instances at once.", missing="say how many")]

The struct has the name, the type and the default of each key. Its annotation adds a `Form` (how the value is
read, written and described) and a `Key` (what the key means). `RULES` of the struct says which keys go
together. `shape_of(LimitSpec)` has the reader, the JSON Schema, the canonical and the short form, and the
rows of the reference page.
"""

from hetuflow_core.fields.forms import (
    BOOLEAN,
    OBJECT,
    TEXT,
    WORDS,
    Form,
    checked,
    choice,
    distinct,
    duration,
    entries,
    matching,
    number,
    only_true,
    several,
    text_unless,
    whole,
)
from hetuflow_core.fields.keys import Inline, Key, Written
from hetuflow_core.fields.rules import (
    AllOf,
    AnyKey,
    AnyOf,
    AtMostOne,
    Beside,
    Check,
    Needs,
    OneOf,
    OnlyWith,
    Rule,
    WithFlag,
    Without,
)
from hetuflow_core.fields.section import Section
from hetuflow_core.fields.shape import Row, Shape, section, shape_of, unwrapped
from hetuflow_core.fields.terms import LABEL_KEY, LABELS, NAME, NAME_PATTERN, NAMES, PRIORITY, SIZE
from hetuflow_core.fields.value_reader import TemplateScope, ValueReader

__all__ = [
    "BOOLEAN",
    "LABELS",
    "LABEL_KEY",
    "NAME",
    "NAMES",
    "NAME_PATTERN",
    "OBJECT",
    "PRIORITY",
    "SIZE",
    "TEXT",
    "WORDS",
    "AllOf",
    "AnyKey",
    "AnyOf",
    "AtMostOne",
    "Beside",
    "Check",
    "Form",
    "Inline",
    "Key",
    "Needs",
    "OneOf",
    "OnlyWith",
    "Row",
    "Rule",
    "Section",
    "Shape",
    "TemplateScope",
    "ValueReader",
    "WithFlag",
    "Without",
    "Written",
    "checked",
    "choice",
    "distinct",
    "duration",
    "entries",
    "matching",
    "number",
    "only_true",
    "section",
    "several",
    "shape_of",
    "text_unless",
    "unwrapped",
    "whole",
]
