"""Convert values between Python and PostgreSQL for one session.

psycopg exports the object that does this in C, but does not document it. `PlainTransformer` has the methods
that a session calls, and uses only the documented adapters of the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

import psycopg
import structlog
from psycopg import adapt, pq
from psycopg.abc import Buffer, Dumper, DumperKey
from psycopg.adapt import PyFormat
from psycopg.pq.abc import PGresult

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.postgres")

_TRANSFORMER = "Transformer"
# The loader registered for this id serves all types that have no loader.
_ANY_TYPE = 0


class Transformer(Protocol):
    """The part of psycopg's class of this name that a session uses."""

    @property
    def types(self) -> tuple[int, ...] | None: ...

    @property
    def formats(self) -> list[pq.Format] | None: ...

    def dump_sequence(
        self, params: Sequence[Any], formats: Sequence[PyFormat]
    ) -> Sequence[Buffer | None]: ...

    def set_pgresult(self, result: PGresult, *, set_loaders: bool, format: pq.Format) -> None: ...  # noqa: A002 - psycopg's

    def load_rows(self, row0: int, row1: int, make_row: Callable[[Sequence[Any]], Any]) -> list[Any]: ...


def transformer(driver: psycopg.AsyncConnection[Any]) -> Transformer:
    """Return the transformer of a connection; register adapters before."""
    made: Callable[[psycopg.AsyncConnection[Any]], Transformer] | None = getattr(adapt, _TRANSFORMER, None)
    if made is None:
        _warn()
        return PlainTransformer(driver)
    return made(driver)


@cache
def _warn() -> None:
    log.warning("psycopg lacks private parts, values are adapted more slowly", missing=[_TRANSFORMER])


class PlainTransformer:
    def __init__(self, driver: psycopg.AsyncConnection[Any]) -> None:
        self.types: tuple[int, ...] | None = None
        self.formats: list[pq.Format] | None = None
        self._driver = driver
        self._dumpers: dict[tuple[DumperKey, PyFormat], Dumper] = {}
        self._result: PGresult
        self._loads: list[Callable[[Buffer | None], Any]] = []

    def dump_sequence(self, params: Sequence[Any], formats: Sequence[PyFormat]) -> Sequence[Buffer | None]:
        dumpers = [self._dumper(param, wanted) for param, wanted in zip(params, formats, strict=True)]
        self.types = tuple(dumper.oid for dumper in dumpers)
        self.formats = [dumper.format for dumper in dumpers]
        return [
            None if param is None else dumper.dump(param)
            for param, dumper in zip(params, dumpers, strict=True)
        ]

    def set_pgresult(self, result: PGresult, *, set_loaders: bool, format: pq.Format) -> None:  # noqa: A002, ARG002 - psycopg's
        self._result = result
        self._loads = [self._load(result.ftype(column), format) for column in range(result.nfields)]

    def load_rows(self, row0: int, row1: int, make_row: Callable[[Sequence[Any]], Any]) -> list[Any]:
        return [
            make_row([load(self._result.get_value(row, column)) for column, load in enumerate(self._loads)])
            for row in range(row0, row1)
        ]

    def _load(self, oid: int, wanted: pq.Format) -> Callable[[Buffer | None], Any]:
        adapters = self._driver.adapters
        loader = adapters.get_loader(oid, wanted) or adapters.get_loader(_ANY_TYPE, wanted)
        if loader is None:
            raise psycopg.InterfaceError(f"no loader is registered for the type {oid}")
        load = loader(oid, self._driver).load
        return lambda value: None if value is None else load(value)

    def _dumper(self, param: Any, wanted: PyFormat) -> Dumper:
        kind = type(param)
        dumper = self._dumpers.get((kind, wanted))
        if dumper is None:
            dumper = self._driver.adapters.get_dumper(kind, wanted)(kind, self._driver)
            self._dumpers[kind, wanted] = dumper
        if (key := dumper.get_key(param, wanted)) is kind:
            return dumper
        if (key, wanted) not in self._dumpers:
            self._dumpers[key, wanted] = dumper.upgrade(param, wanted)
        return self._dumpers[key, wanted]
