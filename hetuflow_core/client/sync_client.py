"""The client for programs that wait for each call."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import ExitStack
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


class BlockingTransport(HttpxTransport[httpx.Client]):
    """Carries plans out, one need after the other. Threads may share it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def carry_out(self, plan: Plan[T]) -> T:
        if self._key is not None:
            plan = under_key(plan, self._key)
        with ExitStack() as opened:
            outcome: Any = None
            while True:
                try:
                    need = plan.send(outcome)
                except StopIteration as done:
                    result: T = done.value
                    return result
                outcome = self._meet(need, opened)

    def iterate(self, plan: Stream[T]) -> Generator[T, None, None]:
        # The stack closes the connection also when the caller stops iterating half-way.
        with ExitStack() as opened:
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
                    outcome = self._meet(need, opened)

    def _connect(self, options: dict[str, Any]) -> httpx.Client:
        return httpx.Client(**options)

    def _meet(self, need: Send | Open | Read | Pause | Now, opened: ExitStack) -> Any:
        match need:
            case Pause(least, spread):
                time.sleep(least + spread * self._draw())
                return None
            case Now():
                return self._clock.boottime()
        try:
            match need:
                case Send(request):
                    response = self._http.request(**request_options(self._endpoint, request))
                    return answer_of(self._endpoint, response)
                case Open(request):
                    return self._open(stream_options(self._endpoint, request), opened)
                case Read(answer):
                    return next(answer.chunks, None)
        except httpx.RequestError as error:
            return no_answer(self._endpoint, error)

    def _open(self, options: dict[str, Any], opened: ExitStack) -> Answer | NoAnswer:
        opened.close()
        response = opened.enter_context(self._http.stream(**options))
        if response.is_success:
            return answer_of(self._endpoint, response, chunks=response.iter_bytes())
        response.read()
        return answer_of(self._endpoint, response)


class Hetuflow(BlockingTransport, Operations):
    """A Hetuflow server, asked over REST. Errors are those of `hetuflow_core.errors`.

    `url` and `api_key` default to HETUFLOW_URL and HETUFLOW_API_KEY, the address then to
    http://127.0.0.1:8600.

        with Hetuflow() as hetuflow:
            job = hetuflow.job("default", "nightly-report")
            task = hetuflow.run(job.id, params={"who": "me"}, idempotency_key="report-2026-07-01")
            print(hetuflow.wait(task.id, timeout=600).status)
    """
