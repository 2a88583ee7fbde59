"""One session of the database, and what a transaction hands out of it.

psycopg does the work; this keeps what it costs per statement small: cursors and the shapes of rows are made
once, and every statement is prepared when it is met a second time.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg import pq
from psycopg.rows import no_result
from psycopg.types.json import set_json_loads

from hetuflow_server.store.arrays import register_arrays

V = TypeVar("V")

_MOST_PREPARED = 300


# A plan made while the tables were small must still be right when they are not: no whole table is ever read.
_BY_KEY = {
    b"plan_cache_mode": b"force_generic_plan",
    b"enable_seqscan": b"off",
    b"enable_hashjoin": b"off",
    b"enable_mergejoin": b"off",
    b"enable_memoize": b"off",
}


def _set(settings: Mapping[bytes, bytes]) -> bytes:
    return b"; ".join(b"SET %s = %s" % one for one in settings.items())


def _reset(names: Iterable[bytes]) -> bytes:
    """Back to what the operator chose."""
    return b"; ".join(b"RESET " + name for name in names)


class Lane(Enum):
    """How a session plans and commits; one that is borrowed for another lane is switched first."""

    ORDINARY = _reset([*_BY_KEY, b"synchronous_commit"])
    # Planned once and for all, by key: for statements that name every row they touch, however many there are.
    PLANNED = _set(_BY_KEY) + b"; " + _reset([b"synchronous_commit"])
    # The same, and a crash of the database may forget what was committed last: for what is harmless to lose.
    FORGETFUL = _set({**_BY_KEY, b"synchronous_commit": b"off"})


class Values(list[V]):
    """The first column of a result."""

    def all(self) -> list[V]:
        return self


class Rows(list[Any]):
    """A result that was read whole; its rows have their columns as attributes."""

    def __init__(self, rows: Iterable[Any], rowcount: int) -> None:
        super().__init__(rows)
        self.rowcount = rowcount

    def all(self) -> list[Any]:
        return self

    def scalars(self) -> Values[Any]:
        return Values([row[0] for row in self])

    def first(self) -> Any:
        return self[0] if self else None

    def one(self) -> Any:
        if len(self) != 1:
            raise LookupError(f"one row was expected, and there are {len(self)}")
        return self[0]

    def one_or_none(self) -> Any:
        return self.one() if self else None

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        return self.one()[0] if self else None

    def scalar(self) -> Any:
        return self[0][0] if self else None


class Connection:
    """What a transaction hands out; callers pass it on to the store's verbs and never look inside."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session: Session | None = session

    async def exec_driver_sql(
        self, statement: str, parameters: Mapping[str, Any] | None = None, *, binary: bool = False
    ) -> Rows:
        """Execute one statement with `%(name)s` parameters, and read all of its result.

        `binary` is quicker for many rows of ids and times; it is for columns of ordinary types only.
        """
        return await self._open().execute(statement, parameters, binary=binary)

    async def copy(self, statement: str, rows: bytes) -> None:
        """Execute `COPY … FROM STDIN` with these rows."""
        await self._open().copy(statement, rows)

    async def rollback(self) -> None:
        """Undo what was done so far; leaving the transaction then commits nothing."""
        if self._session is not None:
            await self._session.rollback()

    def _open(self) -> Session:
        if self._session is None:
            raise RuntimeError("this transaction is over: statements belong inside its `async with`")
        return self._session

    def end(self) -> None:
        """Whoever kept this connection cannot reach into the transaction of the next one."""
        self._session = None


class Session:
    """One connection to the database, kept open from transaction to transaction."""

    def __init__(self, driver: psycopg.AsyncConnection[Any]) -> None:
        self._driver = driver
        self.lane = Lane.ORDINARY
        driver.prepare_threshold = 1
        driver.prepared_max = _MOST_PREPARED
        set_json_loads(msgspec.json.decode, driver)
        register_arrays(driver)
        # Made last: a cursor copies what its connection can adapt.
        self._cursor = driver.cursor(row_factory=attribute_row)

    @property
    def closed(self) -> bool:
        return self._driver.closed

    async def enter(self, lane: Lane, *, single: bool) -> None:
        """Get ready for a transaction, or for statements that are each a transaction of their own."""
        if self.lane is not lane:
            await self._driver.set_autocommit(True)
            await self._driver.execute(lane.value, prepare=False)
            self.lane = lane
        if self._driver.autocommit is not single:
            await self._driver.set_autocommit(single)

    async def execute(self, statement: str, parameters: Mapping[str, Any] | None, *, binary: bool) -> Rows:
        cursor = self._cursor
        await cursor.execute(statement.encode(), parameters, binary=binary)
        result = cursor.pgresult
        has_rows = result is not None and result.status == pq.ExecStatus.TUPLES_OK
        return Rows(await cursor.fetchall() if has_rows else (), cursor.rowcount)

    async def copy(self, statement: str, rows: bytes) -> None:
        async with self._cursor.copy(statement.encode()) as copy:
            await copy.write(rows)

    async def commit(self) -> None:
        await self._driver.commit()

    async def rollback(self) -> None:
        await self._driver.rollback()

    async def close(self) -> None:
        await self._driver.close()


def attribute_row(cursor: psycopg.AsyncCursor[Any]) -> Callable[[Sequence[Any]], Any]:
    """Rows as tuples with names; `_mapping` is a row as a dictionary."""
    result = cursor.pgresult
    if result is None or result.status != pq.ExecStatus.TUPLES_OK:
        return no_result
    return _row_maker(tuple([result.fname(place) for place in range(result.nfields)]))


@cache
def _row_maker(columns: tuple[bytes | None, ...]) -> Callable[[Sequence[Any]], Any]:
    names = [(column or b"").decode() for column in columns]
    named: type[Any] = namedtuple("Row", names, rename=True)  # type: ignore[misc]  # noqa: PYI024 - known only here
    as_mapping = property(lambda row: dict(zip(names, row, strict=True)))
    row_type = type("Row", (named,), {"__slots__": (), "_mapping": as_mapping})
    # Its own `_make` would check the length of every row.
    return partial(tuple.__new__, row_type)
