"""One transaction around everything a request does, so that its effect and its answer are kept together.

Services open and leave their transactions as ever; within an envelope each is a part of it, which can still
fail and be undone by itself. Nothing counts before the envelope is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import psycopg

from hetuflow_server.postgres.connection import Connection, Rows
from hetuflow_server.postgres.faults import lost_connection, unreachable


class IdempotentTransaction:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._parts = 0
        self._afterwards: list[Callable[[], None]] = []
        # A part was taken back on purpose: that something was written may not mean that it was done.
        self.undone = False

    @property
    def connection(self) -> Connection:
        return self._connection

    def part(self, *, on_undo: Callable[[], None]) -> TransactionPart:
        """Return what stands for a transaction within this one; `on_undo` is called if it is taken back."""
        self._parts += 1
        return TransactionPart(self, f"part_{self._parts}", on_undo)

    def afterwards(self, callback: Callable[[], None]) -> None:
        """Call it once all is committed, and never if it is not."""
        self._afterwards.append(callback)

    def committed(self) -> None:
        for callback in self._afterwards:
            callback()


class TransactionPart:
    """`async with` gives the connection, as a transaction does."""

    def __init__(self, envelope: IdempotentTransaction, name: str, on_undo: Callable[[], None]) -> None:
        self._envelope = envelope
        self._connection = envelope.connection
        self._name = name
        self._on_undo = on_undo

    async def __aenter__(self) -> Connection:
        await self._connection.execute(f"SAVEPOINT {self._name}")
        self._handed_out = _PartConnection(self._connection, self)
        return self._handed_out

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handed_out.end()
        if isinstance(error, psycopg.Error) and lost_connection(error):
            raise unreachable(error) from error
        if isinstance(error, Exception):
            await self.undo()
        if error is None or isinstance(error, Exception):
            await self._connection.execute(f"RELEASE SAVEPOINT {self._name}")

    async def undo(self) -> None:
        self._envelope.undone = True
        self._on_undo()
        await self._connection.execute(f"ROLLBACK TO SAVEPOINT {self._name}")


class _PartConnection(Connection):
    """What a part hands out: it neither commits nor undoes more than the part."""

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
        await self._part.undo()

    def end(self) -> None:
        self._whole = None

    def _open_whole(self) -> Connection:
        if self._whole is None:
            raise RuntimeError("this transaction is over: statements belong inside its `async with`")
        return self._whole
