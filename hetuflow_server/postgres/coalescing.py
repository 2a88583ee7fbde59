"""Coalescing: requests that arrive while one is under way share the next transaction; idle, nothing waits.

Under load a transaction waits a little for more of them: what it costs beside its rows is shared by more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from hetuflow_core.errors import DatabaseUnreachable

# How long a batch waits for others, as a share of what the last one took, and at most.
_SHARE = 0.5
_LONGEST_GATHERING = 0.002
_STILL_BUSY = 0.01
# How often a request that may succeed next time is tried on its own.
_TRIES = 3

Q = TypeVar("Q")
A = TypeVar("A")


class Gathering:
    """How long the next transaction waits for others to share it: not at all while each comes alone."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._ended = 0.0

    def pause(self, now: float) -> float:
        """Return how many seconds to wait; what there was to share before a time of rest tells nothing."""
        return self._seconds if now - self._ended < _STILL_BUSY else 0.0

    def note(self, requests: int, began: float, ended: float) -> None:
        """A transaction has served so many requests."""
        self._seconds = min(_SHARE * (ended - began), _LONGEST_GATHERING) if requests > 1 else 0.0
        self._ended = ended


class Coalescer(Generic[Q, A]):
    def __init__(
        self,
        name: str,
        serve: Callable[[Sequence[Q]], Awaitable[Sequence[A]]],
        *,
        most: int,
        weigh: Callable[[Q], int],
        again: Callable[[Exception], bool] = lambda _: False,
    ) -> None:
        """`serve` answers a batch in order, in one transaction; its requests weigh at most `most` in all.

        `again` tells which errors of a single request are worth another try.
        """
        self._name = name
        self._serve = serve
        self._most = most
        self._weigh = weigh
        self._again = again
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._serving: asyncio.Task[None] | None = None
        self._gathering = Gathering()

    async def ask(self, request: Q) -> A:
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve_all(), name=self._name)
        return await answer

    async def _serve_all(self) -> None:
        now = asyncio.get_running_loop().time
        while self._waiting:
            if pause := self._gathering.pause(now()):
                await asyncio.sleep(pause)
            batch = self._take_batch()
            # Whoever has gone meanwhile is not served: nobody would hear the answer.
            batch = [(request, answer) for request, answer in batch if not answer.done()]
            if batch:
                began = now()
                await self._serve_batch(batch)
                self._gathering.note(len(batch), began, now())

    def _take_batch(self) -> list[tuple[Q, asyncio.Future[A]]]:
        weight = count = 0
        for request, _ in self._waiting:
            weight += self._weigh(request)
            if count and weight > self._most:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _serve_batch(self, batch: list[tuple[Q, asyncio.Future[A]]], tries: int = _TRIES) -> None:
        try:
            answers = await self._serve([request for request, _ in batch])
        except DatabaseUnreachable as error:
            # Asking for each of them again would only make them wait longer for the same answer.
            for _, answer in batch:
                _fail(answer, error)
        except Exception as error:  # noqa: BLE001 - handed to whoever asked
            if len(batch) > 1:
                # One bad request must not fail its neighbours: the batch is halved until it stands alone.
                middle = len(batch) // 2
                await self._serve_batch(batch[:middle])
                await self._serve_batch(batch[middle:])
            elif tries > 1 and self._again(error):
                await self._serve_batch(batch, tries - 1)
            else:
                _fail(batch[0][1], error)
        else:
            for (_, answer), given in zip(batch, answers, strict=True):
                if not answer.done():
                    answer.set_result(given)


def _fail(answer: asyncio.Future[A], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
