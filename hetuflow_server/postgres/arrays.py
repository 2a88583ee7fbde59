"""Arrays in PostgreSQL's binary format: a column of a batch as one parameter.

psycopg would write each element as text and inspect the type of each; for a batch of a hundred rows with ten
columns that is most of the cost of a statement. Here the type of a column is known in advance.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, ClassVar
from uuid import UUID

import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import Dumper

_HEADER = Struct("!iiIii")  # dimensions, whether there are NULLs, element type, length, lower bound
_EMPTY = Struct("!iiI")
_NULL = b"\xff\xff\xff\xff"
_INT2, _INT4, _INT8 = Struct("!ih"), Struct("!ii"), Struct("!iq")
_LENGTH = Struct("!i")
_UUID_LENGTH = _LENGTH.pack(16)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH_MILLISECONDS = int(_EPOCH.timestamp()) * 1000
_MICROSECOND = timedelta(microseconds=1)


class Array:
    """An encoded array; subclasses define the type of its elements."""

    __slots__ = ("encoded",)
    element_oid: ClassVar[int]
    array_oid: ClassVar[int]

    def __init__(self, values: Sequence[Any]) -> None:
        if not values:
            self.encoded = _EMPTY.pack(0, 0, self.element_oid)
            return
        count = len(values)
        if values[0] is None and values.count(None) == count:
            # Most columns of a batch are NULL in all rows.
            self.encoded = _HEADER.pack(1, 1, self.element_oid, count, 1) + _NULL * count
            return
        elements = self.elements(values)
        header = _HEADER.pack(1, _NULL in elements, self.element_oid, count, 1)
        self.encoded = header + b"".join(elements)

    @staticmethod
    def elements(values: Sequence[Any]) -> list[bytes]:
        """Return each value with its length before it, or the mark of NULL."""
        raise NotImplementedError


class Uuids(Array):
    __slots__ = ()
    element_oid, array_oid = 2950, 2951

    @staticmethod
    def elements(values: Sequence[UUID | None]) -> list[bytes]:
        return [_NULL if value is None else _UUID_LENGTH + value.int.to_bytes(16, "big") for value in values]


class Texts(Array):
    __slots__ = ()
    element_oid, array_oid = 25, 1009

    @staticmethod
    def elements(values: Sequence[str | None]) -> list[bytes]:
        return [_NULL if value is None else _text(value) for value in values]


class JsonTexts(Array):
    """jsonb, from text that is JSON."""

    __slots__ = ()
    element_oid, array_oid = 3802, 3807

    @staticmethod
    def elements(values: Sequence[str | None]) -> list[bytes]:
        return [_NULL if value is None else _json(value) for value in values]


class Blobs(Array):
    """bytea, unchanged: the driver would write two digits for each byte."""

    __slots__ = ()
    element_oid, array_oid = 17, 1001

    @staticmethod
    def elements(values: Sequence[bytes | None]) -> list[bytes]:
        return [_NULL if value is None else _LENGTH.pack(len(value)) + value for value in values]


class SmallInts(Array):
    __slots__ = ()
    element_oid, array_oid = 21, 1005

    @staticmethod
    def elements(values: Sequence[int | None]) -> list[bytes]:
        return [_NULL if value is None else _INT2.pack(2, value) for value in values]


class Ints(Array):
    __slots__ = ()
    element_oid, array_oid = 23, 1007

    @staticmethod
    def elements(values: Sequence[int | None]) -> list[bytes]:
        return [_NULL if value is None else _INT4.pack(4, value) for value in values]


class BigInts(Array):
    __slots__ = ()
    element_oid, array_oid = 20, 1016

    @staticmethod
    def elements(values: Sequence[int | None]) -> list[bytes]:
        return [_NULL if value is None else _INT8.pack(8, value) for value in values]


class Booleans(Array):
    __slots__ = ()
    element_oid, array_oid = 16, 1000

    @staticmethod
    def elements(values: Sequence[bool | None]) -> list[bytes]:
        return [_NULL if value is None else b"\0\0\0\1\1" if value else b"\0\0\0\1\0" for value in values]


class Instants(Array):
    """timestamptz: microseconds since 2000."""

    __slots__ = ()
    element_oid, array_oid = 1184, 1185

    @staticmethod
    def elements(values: Sequence[datetime | None]) -> list[bytes]:
        return [
            _NULL if value is None else _INT8.pack(8, (value - _EPOCH) // _MICROSECOND) for value in values
        ]


class Moments(Array):
    """timestamptz, from milliseconds since 1970."""

    __slots__ = ()
    element_oid, array_oid = 1184, 1185

    @staticmethod
    def elements(values: Sequence[int | None]) -> list[bytes]:
        return [
            _NULL if value is None else _INT8.pack(8, (value - _EPOCH_MILLISECONDS) * 1000)
            for value in values
        ]


ARRAYS: tuple[type[Array], ...] = (
    Uuids,
    Texts,
    JsonTexts,
    Blobs,
    SmallInts,
    Ints,
    BigInts,
    Booleans,
    Instants,
    Moments,
)


def register_arrays(connection: psycopg.AsyncConnection[Any]) -> None:
    for kind in ARRAYS:
        connection.adapters.register_dumper(kind, _DUMPERS[kind])


class _ArrayDumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: Array) -> Buffer | None:
        return obj.encoded


_DUMPERS: dict[type[Array], type[_ArrayDumper]] = {
    kind: type(f"{kind.__name__}Dumper", (_ArrayDumper,), {"oid": kind.array_oid}) for kind in ARRAYS
}


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _json(value: str) -> bytes:
    encoded = value.encode()
    # The version of the binary format of jsonb comes first.
    return _LENGTH.pack(len(encoded) + 1) + b"\1" + encoded
