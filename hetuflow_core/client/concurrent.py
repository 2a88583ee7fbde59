"""The client for programs that run on asyncio."""

from __future__ import annotations

import asyncio
import functools
import os
import random
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from hetuflow_core.client import following, operations, watching
from hetuflow_core.client.blocking import with_self
from hetuflow_core.client.endpoint import Endpoint
from hetuflow_core.client.exchange import Answer, Emit, NoAnswer, Now, Open, Pause, Plan, Read, Send, Stream
from hetuflow_core.client.wire import (
    DEFAULT_TIMEOUT_SECONDS,
    answer_of,
    client_options,
    no_answer,
    request_options,
    stream_options,
)
from hetuflow_core.runtime.clock import Clock, SystemClock

P = ParamSpec("P")
T = TypeVar("T")


class AwaitedTransport:
    """Carries plans out, one need after the other. The tasks of one event loop may share it."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        clock: Clock | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._endpoint = Endpoint.resolve(url, api_key, os.environ)
        self._clock = clock or SystemClock()
        self._draw = draw
        self._http = httpx.AsyncClient(**client_options(self._endpoint, timeout))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(url={self._endpoint.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    @property
    def url(self) -> str:
        return self._endpoint.url

    async def carry_out(self, plan: Plan[T]) -> T:
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


def _call(build: Callable[P, Plan[T]]) -> Callable[Concatenate[AwaitedTransport, P], Coroutine[Any, Any, T]]:
    @functools.wraps(build)
    async def call(self: AwaitedTransport, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.carry_out(build(*args, **kwargs))

    return with_self(call, build)


def _iteration(
    build: Callable[P, Stream[T]],
) -> Callable[Concatenate[AwaitedTransport, P], AsyncGenerator[T, None]]:
    @functools.wraps(build)
    def iterate(self: AwaitedTransport, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        return self.iterate(build(*args, **kwargs))

    return with_self(iterate, build)


class AsyncHetuflow(AwaitedTransport):
    """The same as `Hetuflow`, for asyncio: calls are awaited, lists and logs iterated with `async for`.

    Whoever leaves an iteration early closes it (`contextlib.aclosing`), and with it the connection.
    """

    apply = _call(operations.apply)
    jobs = _iteration(operations.jobs)
    job = _call(operations.job)
    job_by_id = _call(operations.job_by_id)
    run = _call(operations.run)
    run_many = _call(operations.run_many)
    task = _call(operations.task)
    tasks = _iteration(operations.tasks)
    cancel = _call(operations.cancel)
    retry = _call(operations.retry)
    wait = _call(watching.wait)
    follow = _iteration(watching.follow)
    logs = _call(operations.logs)
    log_chunks = _iteration(operations.log_chunks)
    follow_logs = _iteration(following.follow_logs)
    info = _call(operations.info)
    status = _call(operations.status)
