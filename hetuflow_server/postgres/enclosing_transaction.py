"""One transaction around several others: each of those becomes a savepoint that can fail alone.

Callers open and leave their transactions as usual. Nothing is visible to other sessions before the enclosing
transaction commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import psycopg

from hetuflow_server.postgres.connection import Connection, Rows
from hetuflow_server.postgres.faults import lost_connection, unreachable


class EnclosingTransaction:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._parts = 0
        self._after_commit: list[Callable[[], None]] = []
        # A part was rolled back on purpose, so rows may have been written that do not count.
        self.part_rolled_back = False

    @property
    def connection(self) -> Connection:
        return self._connection

    def part(self, *, on_rollback: Callable[[], None]) -> TransactionPart:
        """Return a stand-in for a transaction within this one; rolling it back calls `on_rollback`."""
        self._parts += 1
        return TransactionPart(self, f"part_{self._parts}", on_rollback)

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call `callback` once this transaction is committed, and never if it is rolled back."""
        self._after_commit.append(callback)

    def committed(self) -> None:
        for callback in self._after_commit:
            callback()


class TransactionPart:
    """`async with` gives the connection, as a transaction does."""

    def __init__(
        self, enclosing: EnclosingTransaction, savepoint: str, on_rollback: Callable[[], None]
    ) -> None:
        self._enclosing = enclosing
        self._connection = enclosing.connection
        self._savepoint = savepoint
        self._on_rollback = on_rollback

    async def __aenter__(self) -> Connection:
        await self._connection.execute(f"SAVEPOINT {self._savepoint}")
        self._part_connection = _PartConnection(self._connection, self)
        return self._part_connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._part_connection.end()
        if isinstance(error, psycopg.Error) and lost_connection(error):
            raise unreachable(error) from error
        if isinstance(error, Exception):
            await self.rollback()
        if error is None or isinstance(error, Exception):
            await self._connection.execute(f"RELEASE SAVEPOINT {self._savepoint}")

    async def rollback(self) -> None:
        self._enclosing.part_rolled_back = True
        self._on_rollback()
        await self._connection.execute(f"ROLLBACK TO SAVEPOINT {self._savepoint}")


class _PartConnection(Connection):
    """The connection of a part: it never commits, and rolls back no more than the part."""

    __slots__ = ("_part", "_whole")

    def __init__(self, whole: Connection, part: TransactionPart) -> None:
        self._whole: Connection | None = whole
        self._part = part

    async def execute(
        self,
        statement: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        binary: bool = False,
        last: bool = False,
    ) -> Rows:
        rows = await self._open_whole().execute(statement, parameters, binary=binary)
        if last:
            self.end()
        return rows

    async def copy(self, statement: str, rows: bytes) -> None:
        await self._open_whole().copy(statement, rows)

    async def rollback(self) -> None:
        await self._part.rollback()

    def end(self) -> None:
        self._whole = None

    def _open_whole(self) -> Connection:
        if self._whole is None:
            raise RuntimeError("this transaction has ended: execute statements inside its `async with`")
        return self._whole
