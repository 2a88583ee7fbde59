"""Looks for work: those that come together are asked together, in one round trip and one short transaction.

Loops that wake at the same moment each have a small question, and a transaction for each would cost several
times what the answers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import Context
from types import TracebackType
from typing import Any, NamedTuple

from hetuflow_server.postgres.connection import Connection, Lane, Question, Rows, Session
from hetuflow_server.postgres.faults import lost_connection, unreachable
from hetuflow_server.postgres.pool import Pool


class _Asked(NamedTuple):
    question: Question
    answer: asyncio.Future[Rows]

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class ReadBatcher:
    """Gathers what is asked within one turn of the event loop, of one lane."""

    def __init__(self, pool: Pool, lane: Lane) -> None:
        self._pool = pool
        self._lane = lane
        self._asked: list[_Asked] = []
        self._asking: set[asyncio.Task[None]] = set()

    async def ask(self, question: Question) -> Rows:
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.call_soon(self._begin)
        asked = _Asked(question, loop.create_future())
        self._asked.append(asked)
        return await asked.answer

    def _begin(self) -> None:
        asked, self._asked = self._asked, []
        # In nobody's context: it is not one of them who asks.
        task = asyncio.get_running_loop().create_task(self._ask(asked), name="looks", context=Context())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask(self, asked: Sequence[_Asked]) -> None:
        try:
            session = await self._pool.borrow(self._lane)
        except Exception as error:  # noqa: BLE001 - theirs to cope with
            for one in asked:
                one.fail(error)
            return
        usable = False
        try:
            session.enter(self._lane, single=True)
            usable = await _answer(session, asked)
        finally:
            await self._pool.give_back(session, broken=not usable)
            # Nobody waits for an answer that will not come any more.
            for one in asked:
                one.answer.cancel()


async def _answer(session: Session, asked: Sequence[_Asked]) -> bool:
    """Have all of them answered; return whether the session can be used again."""
    try:
        answers = await session.execute_together([one.question for one in asked])
    except Exception as error:  # noqa: BLE001 - theirs to cope with
        if lost_connection(error):
            for one in asked:
                one.fail(unreachable(error))
            return False
        if len(asked) == 1:
            asked[0].fail(error)
            return True
        # One that fails keeps none of the others from its answer.
        return all([await _answer(session, [one]) for one in asked])
    for one, rows in zip(asked, answers, strict=True):
        if not one.answer.done():
            one.answer.set_result(rows)
    return True


class BatchedRead:
    """`async with` gives the connection, as a transaction does."""

    def __init__(self, looks: ReadBatcher) -> None:
        self._looks = looks

    async def __aenter__(self) -> Connection:
        self._handed_out = _BatchedReadConnection(self._looks)
        return self._handed_out

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handed_out.end()


class _BatchedReadConnection(Connection):
    """What a look hands out: there is nothing to commit and nothing to undo."""

    __slots__ = ("_looks",)

    def __init__(self, looks: ReadBatcher) -> None:
        self._looks: ReadBatcher | None = looks
        self._session = None

    async def execute(
        self,
        statement: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        binary: bool = False,
        last: bool = False,
    ) -> Rows:
        looks = self._looks
        if looks is None:
            raise RuntimeError("this look is over: statements belong inside its `async with`")
        if last:
            self.end()
        return await looks.ask(Question(statement, parameters, binary))

    def end(self) -> None:
        self._looks = None
