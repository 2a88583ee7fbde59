"""Forms: how a value of one type is read, written and described."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from hetuflow_core.durations import format_duration
from hetuflow_core.errors import Invalid
from hetuflow_core.fields import json_schema
from hetuflow_core.fields.json_schema import Schema
from hetuflow_core.fields.value_reader import ValueReader, listed

T = TypeVar("T")
C = TypeVar("C", bound=StrEnum)
G = TypeVar("G", bound=Collection[Any])


def unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """`read` notes a fault with its position and returns None; None without a fault means: the default."""

    read: Callable[[ValueReader], T | None]
    # A function where the schema is that of a struct, which may contain itself.
    schema: Schema | Callable[[], Schema]
    write: Callable[[T], Any] = unchanged
    # Without what is the default; None: as `write`.
    write_short: Callable[[T], Any] | None = None
    # The type and its bounds, for the reference page.
    summary: str = "text"
    # The structs whose keys the value has.
    structs: tuple[type[Any], ...] = ()

    def json_schema(self) -> Schema:
        return self.schema() if callable(self.schema) else self.schema

    def shortened(self, value: T) -> Any:
        return (self.write_short or self.write)(value)


TEXT: Final = Form(ValueReader.text, json_schema.TEXT)
# Numbers count as they are written.
WORDS: Final = Form(ValueReader.words, json_schema.WORDS)
BOOLEAN: Final = Form(ValueReader.boolean, json_schema.BOOLEAN, summary="true or false")
OBJECT: Final = Form(ValueReader.json_object, json_schema.OBJECT, summary="mapping")
# Of keys that are refused: whatever is given there is not read.
NOTHING: Final[Form[None]] = Form(lambda _given: None, json_schema.EMPTY)


def whole(low: int, high: int) -> Form[int]:
    return Form(
        lambda given: given.integer(low, high),
        json_schema.whole(low, high),
        summary=f"integer, {low:,} to {high:,}",
    )


def number(low: float, high: float) -> Form[float]:
    return Form(
        lambda given: given.number(low, high),
        {"type": "number", "minimum": low, "maximum": high},
        # A whole number is written without a fraction.
        lambda value: int(value) if value == int(value) else value,
        summary=f"number, {low:,} to {high:,}",
    )


def duration(low: timedelta, high: timedelta) -> Form[timedelta]:
    return Form(
        lambda given: given.duration(low, high),
        json_schema.DURATION,
        format_duration,
        summary=f"duration, {format_duration(low)} to {format_duration(high)}",
    )


def choice(options: type[C], refused: Mapping[C, str] | None = None) -> Form[C]:
    """One of these values; `refused` are known elsewhere, and say why they have no meaning here."""
    messages = refused or {}
    allowed = [option for option in options if option not in messages]

    def read(given: ValueReader) -> C | None:
        option = given.choice(options)
        if option is not None and option in messages:
            given.refuse(messages[option])
        return option

    return Form(
        read,
        json_schema.choice(allowed),
        {option: option.value for option in options}.__getitem__,
        summary=listed(f"`{option.value}`" for option in allowed),
    )


def matching(
    pattern: re.Pattern[str], expected: str, *, schema: Schema | None = None, summary: str = "text"
) -> Form[str]:
    return Form(
        lambda given: given.matching(pattern, expected),
        json_schema.matching(pattern, numbers=True) if schema is None else schema,
        summary=summary,
    )


def text_unless(
    fault: Callable[[str], str | None],
    schema: Schema,
    *,
    read: Callable[[ValueReader], str | None] = ValueReader.text,
    summary: str = "text",
) -> Form[str]:
    """Text, unless a function finds a fault in it."""

    def read_text(given: ValueReader) -> str | None:
        text = read(given)
        message = None if text is None else fault(text)
        if message is not None:
            given.refuse(message)
            return None
        return text

    return Form(read_text, schema, summary=summary)


def checked(
    check: Callable[[str], object],
    schema: Schema,
    *,
    read: Callable[[ValueReader], str | None] = ValueReader.text,
    summary: str = "text",
) -> Form[str]:
    """Text that a function accepts, or refuses with `Invalid`."""

    def fault(text: str) -> str | None:
        try:
            check(text)
        except Invalid as error:
            return error.message
        return None

    return text_unless(fault, schema, read=read, summary=summary)


def only_true(message: str) -> Form[bool]:
    """A flag that is set or left out."""

    def read(given: ValueReader) -> bool | None:
        value = given.boolean()
        if value is False:
            given.refuse(message)
        return value

    return Form(read, {"const": True}, summary="true")


def distinct(items: Iterable[Any]) -> tuple[Any, ...]:
    """Each item once, in order."""
    return tuple(sorted(set(items)))


def several(
    item: Form[T],
    gather: Callable[[Iterable[T]], G],
    *,
    least: int = 0,
    most: int | None = None,
    too_few: str = "",
    too_many: str = "",
    most_distinct: int | None = None,
    alone: type[Any] | None = None,
    alone_schema: Schema | None = None,
    empty: bool = True,
    order: Callable[[G], Iterable[T]] = unchanged,
) -> Form[G]:
    """A list, gathered into a tuple or set; `order` is how that is written.

    `most` counts the items, `most_distinct` what is gathered from them. With `alone`, a value of that type
    stands for a list of one. Without `empty`, an empty list means the default.
    """

    def read(given: ValueReader) -> G | None:
        content = given.node.value
        if alone is not None and isinstance(content, alone) and not isinstance(content, tuple):
            one = item.read(given)
            return None if one is None else gather((one,))
        items = given.items()
        if items is None:
            return None
        if too_few and len(items) < least:
            given.refuse(too_few)
        elif most is not None and len(items) > most:
            given.refuse(too_many)
        gathered = gather([value for value in map(item.read, items) if value is not None])
        if most_distinct is not None and len(gathered) > most_distinct:
            given.refuse(too_many)
        return gathered if empty or gathered else None

    def schema() -> Schema:
        many = json_schema.several(item.json_schema(), least=least, most=most)
        return many if alone is None else {"anyOf": [alone_schema or item.json_schema(), many]}

    def write(values: G) -> list[Any]:
        return [item.write(value) for value in order(values)]

    return Form(
        read,
        schema,
        list if item.write is unchanged and order is unchanged else write,
        lambda values: [item.shortened(value) for value in order(values)],
        summary=_list_summary(item, least, most or most_distinct, alone=alone is not None),
        structs=item.structs,
    )


def _list_summary(item: Form[Any], least: int, most: int | None, *, alone: bool) -> str:
    if least and most:
        bounds = f", {least:,} to {most:,} items"
    elif most:
        bounds = f", at most {most:,} items"
    else:
        bounds = ", not empty" if least else ""
    if alone:
        return f"{item.summary}; or a list of them{bounds}"
    return f"list of mappings{bounds}" if item.structs else f"list{bounds}: {item.summary}"


def entries(
    item: Form[T], name_fault: Callable[[str], str | None], names: Schema, summary: str
) -> Form[dict[str, T]]:
    """A mapping whose keys are the user's."""

    def read(given: ValueReader) -> dict[str, T] | None:
        read_entries = given.entries()
        if read_entries is None:
            return None
        found = {}
        for name, value in read_entries.items():
            fault = name_fault(name)
            if fault is not None:
                value.refuse(fault)
            content = item.read(value)
            if content is not None:
                found[name] = content
        return found

    def write(values: dict[str, T]) -> dict[str, Any]:
        return {name: item.write(value) for name, value in values.items()}

    return Form(
        read,
        lambda: {"type": "object", "propertyNames": names, "additionalProperties": item.json_schema()},
        dict if item.write is unchanged else write,
        lambda values: {name: item.shortened(value) for name, value in values.items()},
        summary=summary,
        structs=item.structs,
    )
