"""The client for programs that run on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

import httpx

from hetuflow_core.client.exchange import Answer, Emit, NoAnswer, Now, Open, Pause, Plan, Read, Send, Stream
from hetuflow_core.client.httpx_transport import (
    HttpxTransport,
    answer_of,
    no_answer,
    request_options,
    stream_options,
)
from hetuflow_core.client.operation_list import Operations
from hetuflow_core.client.retry import under_key

T = TypeVar("T")


class AwaitedTransport(HttpxTransport[httpx.AsyncClient]):
    """Carries plans out, one need after the other. The tasks of one event loop may share it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def carry_out(self, plan: Plan[T]) -> T:
        if self._key is not None:
            plan = under_key(plan, self._key)
        async with AsyncExitStack() as opened:
            outcome: Any = None
            while True:
                try:
                    need = plan.send(outcome)
                except StopIteration as done:
                    result: T = done.value
                    return result
                outcome = await self._meet(need, opened)

    async def iterate(self, plan: Stream[T]) -> AsyncGenerator[T, None]:
        async with AsyncExitStack() as opened:
            outcome: Any = None
            while True:
                try:
                    need = plan.send(outcome)
                except StopIteration:
                    return
                if isinstance(need, Emit):
                    outcome = None
                    yield need.item
                else:
                    outcome = await self._meet(need, opened)

    def _connect(self, options: dict[str, Any]) -> httpx.AsyncClient:
        return httpx.AsyncClient(**options)

    async def _meet(self, need: Send | Open | Read | Pause | Now, opened: AsyncExitStack) -> Any:
        match need:
            case Pause(least, spread):
                await asyncio.sleep(least + spread * self._draw())
                return None
            case Now():
                return self._clock.boottime()
        try:
            match need:
                case Send(request):
                    response = await self._http.request(**request_options(self._endpoint, request))
                    return answer_of(self._endpoint, response)
                case Open(request):
                    return await self._open(stream_options(self._endpoint, request), opened)
                case Read(answer):
                    return await anext(answer.chunks, None)
        except httpx.RequestError as error:
            return no_answer(self._endpoint, error)

    async def _open(self, options: dict[str, Any], opened: AsyncExitStack) -> Answer | NoAnswer:
        await opened.aclose()
        response = await opened.enter_async_context(self._http.stream(**options))
        if response.is_success:
            return answer_of(self._endpoint, response, chunks=response.aiter_bytes())
        await response.aread()
        return answer_of(self._endpoint, response)


class AsyncHetuflow(AwaitedTransport, Operations):
    """The same as `Hetuflow`, for asyncio: calls are awaited, lists and logs iterated with `async for`.

    Whoever leaves an iteration early closes it (`contextlib.aclosing`), and with it the connection.
    """
