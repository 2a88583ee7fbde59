"""Rows as arrays: one statement and one plan for batches of any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import datetime
from enum import Enum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from psycopg.types.numeric import Int2, Int4, Int8

from hetuflow_server.postgres.arrays import (
    Array,
    BigInts,
    Blobs,
    Booleans,
    Instants,
    Ints,
    JsonTexts,
    Moments,
    SmallInts,
    Texts,
    Uuids,
)

# An `int` is sent as bigint unless the record declares a smaller type, or a time.
SmallInt = Annotated[int, SmallInts]
Int = Annotated[int, Ints]
# Text that is JSON.
Json = Annotated[str, JsonTexts]
# Since 1970, as agents send times; stored as timestamptz.
Milliseconds = Annotated[int, Moments]

_ARRAYS = {UUID: Uuids, str: Texts, bytes: Blobs, int: BigInts, bool: Booleans, datetime: Instants}
_Encode = Callable[[list[Any]], Any]
_Elements = Callable[[Sequence[Any]], list[bytes]]


def transpose(row_type: type, rows: Sequence[Any], names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return {field: its value in each row, as an array} for `unnest`; of all fields, or of these."""
    columns = _columns(row_type) if names is None else _some_columns(row_type, names)
    return {name: encode([value_of(row) for row in rows]) for name, value_of, encode in columns}


def scalars(row_type: type, row: Any, prefix: str = "") -> dict[str, Any]:
    """Return {field: its value} for a statement of one row: the types do not depend on the values."""
    return {prefix + name: fixed(value_of(row)) for name, value_of, fixed in _values(row_type)}


def encode_fields(row_type: type, row: Any, names: tuple[str, ...]) -> bytes:
    """Return these fields of a row one after the other, in the format of COPY."""
    return b"".join([elements((value_of(row),))[0] for value_of, elements in _fields(row_type, names)])


@cache
def _columns(row_type: type) -> list[tuple[str, Callable[[Any], Any], _Encode]]:
    hints = get_type_hints(row_type, include_extras=True)
    return [(name, attrgetter(name), _encoder(hints[name])) for name in field_names(row_type)]


@cache
def _some_columns(row_type: type, names: tuple[str, ...]) -> list[tuple[str, Callable[[Any], Any], _Encode]]:
    return [column for column in _columns(row_type) if column[0] in names]


@cache
def _values(row_type: type) -> list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]:
    return [
        (name, value_of, _FIXED.get(encode, _as_it_is) if isinstance(encode, type) else _plain_one)
        for name, value_of, encode in _columns(row_type)
    ]


def field_names(row_type: type[Any]) -> tuple[str, ...]:
    """Of a record, in their order."""
    if issubclass(row_type, msgspec.Struct):
        names: tuple[str, ...] = row_type.__struct_fields__
        return names
    return tuple(field.name for field in fields(row_type))


@cache
def _fields(row_type: type, names: tuple[str, ...]) -> list[tuple[Callable[[Any], Any], _Elements]]:
    columns = {name: (value_of, encode) for name, value_of, encode in _columns(row_type)}
    chosen: list[tuple[Callable[[Any], Any], _Elements]] = []
    for value_of, encode in map(columns.__getitem__, names):
        if not (isinstance(encode, type) and issubclass(encode, Array)):
            raise TypeError(f"{row_type.__name__} has columns that only the driver can encode")
        chosen.append((value_of, encode.elements))
    return chosen


def _encoder(hint: Any) -> _Encode:
    """Return the encoder of a column of this type; unknown types are left to the driver."""
    if get_origin(hint) is Annotated:
        array: _Encode = get_args(hint)[1]
        return array
    if get_origin(hint) in {Union, UnionType}:
        alternatives = [one for one in get_args(hint) if one is not NoneType]
        return _encoder(alternatives[0]) if len(alternatives) == 1 else _plain
    if isinstance(hint, type):
        if hint in _ARRAYS:
            return _ARRAYS[hint]
        if issubclass(hint, Enum) and issubclass(hint, str):
            return Texts
    return _plain


def _plain(values: list[Any]) -> list[Any]:
    return [value.value if isinstance(value, Enum) else value for value in values]


def _plain_one(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _as_it_is(value: Any) -> Any:
    return value


def _sized(size: type[int]) -> Callable[[int | None], int | None]:
    """Fix the type: the driver takes the smallest that fits, and each type would be a separate statement."""
    return lambda value: None if value is None else size(value)


# By the array of the column.
_FIXED: dict[Any, Callable[[Any], Any]] = {
    SmallInts: _sized(Int2),
    Ints: _sized(Int4),
    BigInts: _sized(Int8),
    Texts: _plain_one,
}
