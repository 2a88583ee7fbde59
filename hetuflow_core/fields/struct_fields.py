"""The keys of a struct, found in its annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from hetuflow_core.fields.forms import BOOLEAN, NOTHING, OBJECT, Form, choice
from hetuflow_core.fields.keys import Inline, Key, Written


@dataclass(frozen=True, slots=True)
class StructField:
    """A key of a mapping and the field of the struct that it fills."""

    name: str  # of the key
    field: str
    form: Form[Any]
    key: Key
    default: Any
    # The field of the outer struct that holds the nested struct with `field`.
    inline: str | None = None

    @property
    def required(self) -> bool:
        # What a nested struct needs, only a mapping that has the nested struct needs.
        needed = bool(self.key.missing) or self.default is msgspec.NODEFAULT
        return needed and self.inline is None

    @property
    def always(self) -> bool:
        """Whether the key is written although its value is the default, also in the short form."""
        return self.key.written is Written.ALWAYS or self.required

    @property
    def is_written(self) -> bool:
        return self.key.written is not Written.NEVER and not self.key.refused


@dataclass(frozen=True, slots=True)
class InlineField:
    """A field whose struct has its keys in the mapping of the outer struct."""

    field: str
    struct: type[msgspec.Struct]
    inline: Inline


def struct_fields(
    struct: type[msgspec.Struct], section: Callable[[Any], Form[Any]]
) -> Iterator[StructField | InlineField]:
    """The keys in their order, the inlined ones at their place; fields without a `Key` are no keys.

    `section` gives the form of a nested struct.
    """
    for info in msgspec.structs.fields(struct):
        base, metadata = _annotated(info.type)
        key, inline = _only(Key, metadata), _only(Inline, metadata)
        if inline is not None:
            yield InlineField(info.name, base, inline)
            nested = (one for one in struct_fields(base, section) if isinstance(one, StructField))
            for one in nested:
                if not inline.keys or one.name in inline.keys:
                    yield replace(one, inline=info.name)
        elif key is not None:
            form = _only(Form, metadata) or _form_of(base, section)
            if form is None:
                raise TypeError(f"{struct.__name__}.{info.name} needs a Form: {base} has more than one")
            default = info.default_factory() if callable(info.default_factory) else info.default
            yield StructField(info.encode_name, info.name, form, key, default)


def _annotated(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type without None, and what the annotation adds to it."""
    metadata: tuple[Any, ...] = ()
    if get_origin(annotation) is Annotated:
        annotation, *rest = get_args(annotation)
        metadata = tuple(rest)
    if get_origin(annotation) in (Union, UnionType):
        options = [option for option in get_args(annotation) if option is not NoneType]
        annotation = options[0] if len(options) == 1 else annotation
    return annotation, metadata


def _only(kind: type[Any], metadata: tuple[Any, ...]) -> Any:
    # The last one: what a field adds goes before what the alias of its type says.
    return next((one for one in reversed(metadata) if isinstance(one, kind)), None)


def _form_of(base: Any, section: Callable[[Any], Form[Any]]) -> Form[Any] | None:
    """The only form that values of this type have; None: they have more than one."""
    if base is bool:
        return BOOLEAN
    if base is NoneType:
        return NOTHING
    if isinstance(base, type) and issubclass(base, StrEnum):
        return choice(base)
    if isinstance(base, type) and issubclass(base, msgspec.Struct):
        return section(base)
    return OBJECT if base == dict[str, Any] else None
