"""The shape of a struct: everything that follows from the definitions of its keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from hetuflow_core.fields import json_schema
from hetuflow_core.fields.forms import Form, unchanged
from hetuflow_core.fields.json_schema import Schema
from hetuflow_core.fields.keys import Written
from hetuflow_core.fields.nodes import Node, shortened
from hetuflow_core.fields.rules import AnyKey, Beside, Check, HidingRule, Rule
from hetuflow_core.fields.section import Section
from hetuflow_core.fields.struct_fields import InlineField, StructField, struct_fields
from hetuflow_core.fields.value_reader import ValueReader, did_you_mean, listed

S = TypeVar("S", bound=msgspec.Struct)

_KIND = "kind"
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Row:
    """A key on the reference page."""

    name: str
    form: str
    default: str
    doc: str
    since: str
    structs: tuple[type[Any], ...]


class _Step(NamedTuple):
    """How a key is written; without attributes to look up, because stores and comparisons write often."""

    name: str
    inline: str | None
    field: str
    if_set: bool
    default: Any
    write: Callable[[Any], Any] | None  # None: as it is


class Shape(Generic[S]):
    """`keys` has the keys of the mapping in their order, without `kind`."""

    def __init__(self, struct: type[S]) -> None:
        found = list(struct_fields(struct, section))
        kind, rules = getattr(struct, _KIND, None), getattr(struct, "RULES", ())
        self.struct = struct
        self.kind = kind.value if isinstance(kind, StrEnum) else None
        self.keys: Mapping[str, StructField] = {
            one.name: one for one in found if isinstance(one, StructField)
        }
        self.rules: list[Rule] = [
            rule.among(self.keys) if isinstance(rule, (AnyKey, Beside)) else rule for rule in rules
        ]
        self._known = (*([_KIND] if self.kind else ()), *self.keys)
        self._inlined = [one for one in found if isinstance(one, InlineField)]
        self._hiding = [rule for rule in self.rules if isinstance(rule, HidingRule)]
        self._checks = [rule.function for rule in self.rules if isinstance(rule, Check)]
        self._required = [one for one in self.keys.values() if one.required]
        self._dependent = [one for one in self.keys.values() if one.key.default is not None]
        deciding = {key: self.keys[key] for rule in self._hiding for key in rule.deciding()}
        self._deciding = [(key, one.inline or one.field, one.default) for key, one in deciding.items()]
        self._written: dict[frozenset[str], list[_Step]] = {}

    def read(self, given: ValueReader) -> S | None:
        """Note every fault; return the struct if all required keys could be read."""
        content = given.node.value
        if not isinstance(content, Mapping):
            given.must_be("a mapping")
            return None
        section = self._section(given, content)
        for rule in self.rules:
            rule.check(section)
        values = self._values(section)
        for field in self._required:
            if field.name not in section.present and field.key.missing:
                given.refuse(f'"{field.name}" is missing: {field.key.missing}.')
        if any(field.field not in values for field in self._required):
            return None
        struct = self.struct(**values)
        for check in self._checks:
            check(struct, section)
        return struct

    def _section(self, given: ValueReader, content: Mapping[str, Node]) -> Section:
        section = Section(given, {}, len(given.faults))
        for name, node in content.items():
            field = self.keys.get(name)
            if field is None:
                if name != _KIND or self.kind is None:
                    hint = did_you_mean(name, self._known) or f": use {listed(self._known)}."
                    given.entry(name, node).refuse(f'"{shortened(name)}" is not a known key{hint}')
            elif node.value is not None:
                reader = given.entry(name, node)
                if not field.key.refused:
                    section.present[name] = reader
                elif not reader.is_empty():
                    reader.refuse(field.key.refused)
        return section

    def _values(self, section: Section) -> dict[str, Any]:
        values: dict[str, Any] = {}
        nested: dict[str, dict[str, Any]] = {}
        for name, reader in section.present.items():
            field = self.keys[name]
            value = field.form.read(reader)
            if value is not None:
                (values if field.inline is None else nested.setdefault(field.inline, {}))[field.field] = value
        for field in self._dependent:
            if field.field not in values and field.key.default is not None:
                values[field.field] = field.key.default(values)
        for inlined in self._inlined:
            own, inline = nested.get(inlined.field), inlined.inline
            if own is not None and (not inline.when or self.keys[inline.when].field in own):
                build = inline.build
                values[inlined.field] = inlined.struct(**own) if build is None else build(own, values)
        return values

    def write(self, struct: S) -> dict[str, Any]:
        """The canonical form; reading it gives the same struct."""
        document: dict[str, Any] = {_KIND: self.kind} if self.kind else {}
        for name, inline, field, if_set, default, write in self._steps(struct):
            holder = struct if inline is None else getattr(struct, inline)
            if holder is not None:
                value = getattr(holder, field)
                if not if_set or value != default:
                    document[name] = value if value is None or write is None else write(value)
        return document

    def write_short(self, struct: S) -> dict[str, Any]:
        """The form that people write: without what is the default."""
        document: dict[str, Any] = {_KIND: self.kind} if self.kind else {}
        for step in self._steps(struct):
            field = self.keys[step.name]
            holder = struct if field.inline is None else getattr(struct, field.inline)
            if holder is not None:
                value = getattr(holder, field.field)
                if field.always or value != self._default(field, struct):
                    document[field.name] = None if value is None else field.form.shortened(value)
        return document

    def _steps(self, struct: S) -> list[_Step]:
        """How the keys are written that have a meaning for this variant of the struct."""
        given = _NONE
        if self._deciding:
            given = frozenset(
                [
                    key
                    for key, field, default in self._deciding
                    if (value := getattr(struct, field)) is not None and (default is None or value != default)
                ]
            )
        steps = self._written.get(given)
        if steps is None:
            hidden = {key for rule in self._hiding for key in rule.hidden(given)}
            steps = self._written[given] = [
                _Step(
                    name,
                    field.inline,
                    field.field,
                    field.key.written is Written.SET,
                    field.default,
                    None if field.form.write is unchanged else field.form.write,
                )
                for name, field in self.keys.items()
                if name not in hidden and field.is_written
            ]
        return steps

    def _default(self, field: StructField, struct: S) -> Any:
        if field.key.default is None:
            return field.default
        return field.key.default({name: getattr(struct, name) for name in struct.__struct_fields__})

    def beside(self, variant: str) -> frozenset[str]:
        """The keys that have a meaning together with a variant, and the variant itself."""
        hidden = {key for rule in self._hiding for key in rule.hidden({variant})}
        return frozenset(self.keys) - hidden

    def schema(self) -> Schema:
        required = [field.name for field in self._required]
        properties: dict[str, Schema] = {_KIND: {"const": self.kind}} if self.kind else {}
        for name, field in self.keys.items():
            schema = field.form.json_schema()
            properties[name] = json_schema.key_schema(schema, field.key.doc, required=name in required)
        return json_schema.object_of(
            properties,
            required=[_KIND, *required] if self.kind else required,
            rules=[schema for rule in self.rules for schema in rule.schemas()],
        )

    def rows(self) -> list[Row]:
        return [
            Row(
                name=name,
                form=field.form.summary,
                default=_default_text(field),
                doc=field.key.doc,
                since=field.key.since,
                structs=field.form.structs,
            )
            for name, field in self.keys.items()
            if not field.key.refused
        ]


def _default_text(field: StructField) -> str:
    if field.key.default_doc:
        return field.key.default_doc
    if field.required:
        return "required"
    if field.default is None:
        return "not set"
    if isinstance(field.default, msgspec.Struct) and field.form.structs:
        return "see its keys"
    written = field.form.write(field.default)
    return f"`{written if isinstance(written, str) and written else json.dumps(written)}`"


_SHAPES: dict[type[msgspec.Struct], Shape[Any]] = {}


def shape_of(struct: type[S]) -> Shape[S]:
    """Compiled at the first use: programs that read no documents do not pay for it."""
    shape = _SHAPES.get(struct)
    if shape is None:
        shape = _SHAPES[struct] = Shape(struct)
    return shape


def section(struct: type[S], *, alone: str = "") -> Form[S]:
    """A mapping with the keys of a struct; a value that is no mapping stands for its key `alone`."""

    def read(given: ValueReader) -> S | None:
        shape = shape_of(struct)
        if not alone or isinstance(given.node.value, Mapping):
            return shape.read(given)
        field = shape.keys[alone]
        value = field.form.read(given)
        return None if value is None else struct(**{field.field: value})

    def schema() -> Schema:
        shape = shape_of(struct)
        definition = getattr(struct, "DEFINITION", "")
        mapping = {"$ref": f"{json_schema.REF}{definition}"} if definition else shape.schema()
        return {"anyOf": [shape.keys[alone].form.json_schema(), mapping]} if alone else mapping

    return Form(
        read,
        schema,
        lambda value: shape_of(struct).write(value),
        lambda value: shape_of(struct).write_short(value),
        summary="mapping",
        structs=(struct,),
    )


def unwrapped(struct: type[S], name: str) -> Form[Any]:
    """A mapping whose only key is the value."""
    mapping = section(struct)

    def read(given: ValueReader) -> Any:
        found = mapping.read(given)
        return None if found is None else getattr(found, name)

    return Form(
        read,
        mapping.schema,
        lambda value: mapping.write(struct(**{name: value})),
        summary=mapping.summary,
        structs=mapping.structs,
    )
