"""Batched reading: statements that arrive together share one round trip and one short transaction.

Loops that wake up at the same moment each execute a small query. A transaction for each query would cost
several times as much as the queries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import Context
from types import TracebackType
from typing import Any, NamedTuple

from hetuflow_server.postgres.connection import Connection, Lane, Query, Rows, Session
from hetuflow_server.postgres.faults import lost_connection, unreachable
from hetuflow_server.postgres.pool import Pool


class _PendingQuery(NamedTuple):
    query: Query
    result: asyncio.Future[Rows]

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class ReadBatcher:
    """Collects the queries of one lane that arrive within one iteration of the event loop."""

    def __init__(self, pool: Pool, lane: Lane) -> None:
        self._pool = pool
        self._lane = lane
        self._pending: list[_PendingQuery] = []
        self._executing: set[asyncio.Task[None]] = set()

    async def execute(self, query: Query) -> Rows:
        loop = asyncio.get_running_loop()
        if not self._pending:
            loop.call_soon(self._begin)
        pending = _PendingQuery(query, loop.create_future())
        self._pending.append(pending)
        return await pending.result

    def _begin(self) -> None:
        batch, self._pending = self._pending, []
        # An empty context: the batch belongs to none of its callers, and logs nothing in their name.
        task = asyncio.get_running_loop().create_task(
            self._execute(batch), name="batched reading", context=Context()
        )
        self._executing.add(task)
        task.add_done_callback(self._executing.discard)

    async def _execute(self, batch: Sequence[_PendingQuery]) -> None:
        try:
            session = await self._pool.borrow(self._lane)
        except Exception as error:  # noqa: BLE001 - raised again in each caller
            for pending in batch:
                pending.fail(error)
            return
        usable = False
        try:
            session.enter(self._lane, single=True)
            usable = await _execute_on(session, batch)
        finally:
            await self._pool.give_back(session, broken=not usable)
            # After a cancellation no caller must wait for a result that never arrives.
            for pending in batch:
                pending.result.cancel()


async def _execute_on(session: Session, batch: Sequence[_PendingQuery]) -> bool:
    """Execute a batch and set its results; return whether the session is still usable."""
    try:
        results = await session.execute_together([pending.query for pending in batch])
    except Exception as error:  # noqa: BLE001 - raised again in each caller
        if lost_connection(error):
            for pending in batch:
                pending.fail(unreachable(error))
            return False
        if len(batch) == 1:
            batch[0].fail(error)
            return True
        # A query that fails must not fail the others: execute them one by one.
        return all([await _execute_on(session, [pending]) for pending in batch])
    for pending, rows in zip(batch, results, strict=True):
        if not pending.result.done():
            pending.result.set_result(rows)
    return True


class BatchedRead:
    """`async with` gives the connection, as a transaction does."""

    def __init__(self, batcher: ReadBatcher) -> None:
        self._batcher = batcher

    async def __aenter__(self) -> Connection:
        self._connection = _BatchedReadConnection(self._batcher)
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.end()


class _BatchedReadConnection(Connection):
    """The connection of a batched read: it neither commits nor rolls back."""

    __slots__ = ("_batcher",)

    def __init__(self, batcher: ReadBatcher) -> None:
        self._batcher: ReadBatcher | None = batcher
        self._session = None

    async def execute(
        self,
        statement: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        binary: bool = False,
        last: bool = False,
    ) -> Rows:
        batcher = self._batcher
        if batcher is None:
            raise RuntimeError("this read has ended: execute statements inside its `async with`")
        if last:
            self.end()
        return await batcher.execute(Query(statement, parameters, binary))

    def end(self) -> None:
        self._batcher = None
