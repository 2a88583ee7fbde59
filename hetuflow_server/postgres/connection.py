"""One database session, and the connection that a transaction gives to its body.

Small transactions are cheap: BEGIN is sent with the first statement, COMMIT may be sent with the last, row
types are created once, and a statement is prepared when it is executed a second time.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import psycopg
from psycopg import pq
from psycopg.pq.abc import PGresult
from psycopg.types.json import set_json_loads

from hetuflow_server.postgres.adaptation import transformer
from hetuflow_server.postgres.arrays import register_arrays
from hetuflow_server.postgres.pipeline import Pipeline
from hetuflow_server.postgres.statements import Key, Prepared, translated

V = TypeVar("V")
# A statement with its parameters.
Statement = tuple[str, Mapping[str, Any]]
BeforeCommit = Callable[[], Statement | None]

_MOST_PREPARED = 300
# The plan of a prepared statement no longer matches the tables, or the statement is not prepared.
_UNUSABLE = frozenset({"0A000", "26000"})
_FORMATS = (pq.Format.TEXT, pq.Format.BINARY)


# A plan made while the tables are small is kept when they are large, so it must never scan a whole table.
_BY_KEY = {
    b"plan_cache_mode": b"force_generic_plan",
    b"enable_seqscan": b"off",
    b"enable_hashjoin": b"off",
    b"enable_mergejoin": b"off",
    b"enable_memoize": b"off",
    b"enable_material": b"off",
    b"enable_bitmapscan": b"off",
}
# Read an index in its order, and stop at the limit.
_IN_ORDER = {b"enable_sort": b"off"}


def _set(settings: Mapping[bytes, bytes]) -> tuple[bytes, ...]:
    return tuple(b"SET %s = %s" % one for one in settings.items())


def _reset(names: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return to the settings of the operator."""
    return tuple(b"RESET " + name for name in names)


class Lane(Enum):
    """How a session plans and commits; a session that is borrowed for another lane is switched first."""

    ORDINARY = _reset([*_BY_KEY, *_IN_ORDER, b"synchronous_commit"])
    # One plan for all parameters, by key: for statements that name every row they touch.
    PLANNED = (*_set(_BY_KEY), *_reset([*_IN_ORDER, b"synchronous_commit"]))
    # The same, and a crash of the database may lose the last commits: for data that is harmless to lose.
    ASYNC_COMMIT = (*_set({**_BY_KEY, b"synchronous_commit": b"off"}), *_reset(_IN_ORDER))
    # One plan for all parameters, in the order of an index: for lists, which stop long before its end.
    INDEX_ORDER = (*_set({**_BY_KEY, **_IN_ORDER}), *_reset([b"synchronous_commit"]))


class Values(list[V]):
    """The first column of a result."""

    def all(self) -> list[V]:
        return self


class Rows(list[Any]):
    """A complete result; its rows have their columns as attributes."""

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
            raise LookupError(f"expected one row, found {len(self)}")
        return self[0]

    def one_or_none(self) -> Any:
        return self.one() if self else None

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        return self.one()[0] if self else None

    def scalar(self) -> Any:
        return self[0][0] if self else None


class Query(NamedTuple):
    """A statement that changes nothing, with its parameters."""

    statement: str
    parameters: Mapping[str, Any] | None
    binary: bool


class Connection:
    """What the body of a transaction executes its statements on."""

    __slots__ = ("_before_commit", "_session")

    def __init__(self, session: Session, before_commit: BeforeCommit | None = None) -> None:
        """`before_commit` returns a statement to execute between a `last` statement and its commit."""
        self._session: Session | None = session
        self._before_commit = before_commit

    @property
    def over(self) -> bool:
        return self._session is None

    async def execute(
        self,
        statement: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        binary: bool = False,
        last: bool = False,
    ) -> Rows:
        """Execute one statement with `%(name)s` parameters, and read the whole result.

        `binary` is faster for many rows of ids and times, and only for columns of ordinary types. `last` also
        commits, in the same round trip: no other statement may follow in this transaction.
        """
        session = self._open()
        before_commit = None
        if last:
            self._session = None
            before_commit = self._before_commit and self._before_commit()
        return await session.execute(
            statement, parameters, binary=binary, last=last, before_commit=before_commit
        )

    async def copy(self, statement: str, rows: bytes) -> None:
        """Execute `COPY … FROM STDIN` with these rows."""
        await self._open().copy(statement, rows)

    async def rollback(self) -> None:
        """Roll back everything so far; leaving the transaction then commits nothing."""
        if self._session is not None:
            await self._session.rollback()

    def _open(self) -> Session:
        if self._session is None:
            raise RuntimeError("this transaction has ended: execute statements inside its `async with`")
        return self._session

    def end(self) -> None:
        """Detach from the session: a connection that was kept must not reach into the next transaction."""
        self._session = None
        # Its scope may refer to this connection: a cycle would live until the next garbage collection.
        self._before_commit = None


class Session:
    """One connection to the database, kept open from transaction to transaction."""

    def __init__(self, driver: psycopg.AsyncConnection[Any]) -> None:
        self.lane = Lane.ORDINARY
        set_json_loads(msgspec.json.decode, driver)
        register_arrays(driver)
        # Created last: it copies the adapters of its connection.
        self._adaptation = transformer(driver)
        self._pipeline = Pipeline(driver)
        self._prepared = Prepared(_MOST_PREPARED)
        # Commands to send before the next statement, outside of its transaction.
        self._outstanding: list[bytes] = []
        self._settings = b""
        # Whether each statement is a separate transaction, and whether a transaction of several has begun.
        self._single = False
        self._begun = False
        # Preparations in progress: the index of the result, the name and the key.
        self._preparing: list[tuple[int, bytes, Key]] = []

    @property
    def closed(self) -> bool:
        return self._pipeline.closed

    def enter(self, lane: Lane, *, single: bool) -> None:
        """Prepare for a transaction, or for statements that are each a separate transaction."""
        if self.lane is not lane:
            self._outstanding += lane.value
            self.lane = lane
        self._single = single

    def set(self, command: bytes) -> None:
        """Send a SET command before the next statement, unless the session has executed it already."""
        if command != self._settings:
            self._outstanding.append(command)
            self._settings = command

    async def execute(
        self,
        statement: str,
        parameters: Mapping[str, Any] | None,
        *,
        binary: bool,
        last: bool = False,
        before_commit: Statement | None = None,
    ) -> Rows:
        """Execute one statement: a transaction begins with its first and is committed with its `last`.

        `before_commit` is executed between a last statement and its commit.
        """
        pipeline = self._pipeline
        ends = last and not self._single
        # Before anything is sent: a value that cannot be adapted leaves the session unchanged.
        encoded = self._adapted(statement, parameters)
        added = self._adapted(*before_commit) if before_commit and ends else None
        self._send_outstanding()
        if not (self._single or self._begun):
            pipeline.send(b"BEGIN")
            self._begun = True
        place = self._send(encoded, binary=binary)
        if added is not None:
            self._send(added, binary=False)
        if ends:
            pipeline.send(b"COMMIT")
        pipeline.sync()
        keys = [encoded.key] if added is None else [encoded.key, added.key]
        rows = self._read((await self._exchange(keys))[place], binary=binary)
        if ends:
            self._begun = False
        return rows

    async def execute_together(self, queries: Sequence[Query]) -> list[Rows]:
        """Execute statements that change nothing in one round trip; if one fails, so do all."""
        encoded = [self._adapted(query.statement, query.parameters) for query in queries]
        self._send_outstanding()
        places = [self._send(one, binary=query.binary) for one, query in zip(encoded, queries, strict=True)]
        # Everything up to the sync is one transaction.
        self._pipeline.sync()
        answers = await self._exchange([one.key for one in encoded])
        return [
            self._read(answers[place], binary=query.binary)
            for place, query in zip(places, queries, strict=True)
        ]

    async def copy(self, statement: str, rows: bytes) -> None:
        """Execute a COPY, which a pipeline does not support: the driver does it outside of the pipeline."""
        if not (self._single or self._begun):
            self._send_outstanding()
            self._pipeline.send(b"BEGIN")
            self._begun = True
            self._pipeline.sync()
            await self._exchange()
        async with (
            self._pipeline.interrupted() as driver,
            driver.cursor() as cursor,
            cursor.copy(statement.encode()) as copy,
        ):
            await copy.write(rows)

    async def commit(self) -> None:
        await self._end(b"COMMIT")

    async def rollback(self) -> None:
        await self._end(b"ROLLBACK")

    async def close(self) -> None:
        await self._pipeline.close()

    async def _end(self, how: bytes) -> None:
        if self._begun:
            self._pipeline.send(how)
            self._pipeline.sync()
            await self._exchange()
            self._begun = False

    def _adapted(self, statement: str, parameters: Mapping[str, Any] | None) -> _EncodedStatement:
        if parameters is None:
            return _EncodedStatement((statement, ()), statement.encode())
        translation, adaptation = translated(statement), self._adaptation
        values = adaptation.dump_sequence(
            [parameters[name] for name in translation.names], translation.formats
        )
        return _EncodedStatement(
            (statement, adaptation.types or ()), translation.text, values, adaptation.formats or ()
        )

    def _send_outstanding(self) -> None:
        if self._outstanding:
            for command in self._outstanding:
                self._pipeline.send(command)
            self._pipeline.sync()
            self._outstanding = []

    def _send(self, encoded: _EncodedStatement, *, binary: bool) -> int:
        key, text, values, formats = encoded
        name = self._prepared.name_of(key)
        if name is None and self._preparing:
            # Sent twice in one batch: the statement is prepared by the time of its second use.
            name = next((name for _, name, known in self._preparing if known == key), None)
        if name is None:
            name = self._prepared.worth_preparing(key)
            if name is None:
                return self._pipeline.send(text, values, key[1], formats, binary=binary)
            self._preparing.append((self._pipeline.prepare(name, text, key[1]), name, key))
        return self._pipeline.send_prepared(name, values, formats, binary=binary)

    async def _exchange(self, keys: Sequence[Key] = ()) -> list[PGresult]:
        preparing, self._preparing = self._preparing, []
        answers = await self._pipeline.exchange()
        for place, name, key in preparing:
            if answers[place].status == pq.ExecStatus.COMMAND_OK:
                self._prepared.note(key, name)
                self._outstanding += [b"DEALLOCATE " + gone for gone in self._prepared.surplus()]
        error = self._pipeline.failure(answers)
        if error is not None:
            if error.sqlstate in _UNUSABLE:
                for key in keys:
                    self._prepared.forget(key)
            raise error
        return answers

    def _read(self, answer: PGresult, *, binary: bool) -> Rows:
        touched = answer.command_tuples
        rowcount = -1 if touched is None else touched
        if answer.status != pq.ExecStatus.TUPLES_OK:
            return Rows((), rowcount)
        self._adaptation.set_pgresult(answer, set_loaders=True, format=_FORMATS[binary])
        make = row_maker(tuple([answer.fname(place) for place in range(answer.nfields)]))
        return Rows(self._adaptation.load_rows(0, answer.ntuples, make), rowcount)


class _EncodedStatement(NamedTuple):
    """A statement and its parameters in the format of the protocol."""

    key: Key
    text: bytes
    values: Sequence[Any] = ()
    formats: Sequence[pq.Format] = ()


@cache
def row_maker(columns: tuple[bytes | None, ...]) -> Callable[[Sequence[Any]], Any]:
    names = [(column or b"").decode() for column in columns]
    named: type[Any] = namedtuple("Row", names, rename=True)  # type: ignore[misc]  # noqa: PYI024 - known only here

    def as_dict(row: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(names, row, strict=True))

    row_type = type("Row", (named,), {"__slots__": (), "as_dict": as_dict})
    # `_make` of the named tuple would check the length of every row.
    return partial(tuple.__new__, row_type)
