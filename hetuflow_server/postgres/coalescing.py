"""Coalescing: requests that arrive during a transaction share the next one. If idle, no request waits.

Under load a transaction waits a little for more requests, so that more of them share its fixed cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from hetuflow_core.errors import DatabaseUnreachable

# How long a batch waits for more requests: a share of the time of the last batch, and at most this long.
_SHARE = 0.5
_LONGEST_GATHERING = 0.002
_STILL_BUSY = 0.01
# How often a single request is tried if its error is temporary.
_TRIES = 3

Q = TypeVar("Q")
A = TypeVar("A")


class Gathering:
    """How long the next transaction waits for more requests: not at all while requests come one by one."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._ended = 0.0

    def pause(self, now: float) -> float:
        """Return how many seconds to wait; the load before an idle time does not count."""
        return self._seconds if now - self._ended < _STILL_BUSY else 0.0

    def note(self, requests: int, began: float, ended: float) -> None:
        """Note that a transaction has served this many requests."""
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
        """`serve` answers a batch in order, in one transaction; its requests weigh at most `most` in total.

        `again` returns whether a single request is worth another try after this error.
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
            # A request whose caller was cancelled meanwhile is not served.
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
            # Trying each request alone would only delay the same error.
            for _, answer in batch:
                _fail(answer, error)
        except Exception as error:  # noqa: BLE001 - raised again in the caller
            if len(batch) > 1:
                # A bad request must not fail the others: halve the batch until the request is alone.
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
