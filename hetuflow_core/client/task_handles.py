"""`my_task.enqueue(x=1)`: a task of a function in one line, and its result as the function returned it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypedDict, TypeVar, Unpack
from uuid import UUID

from hetuflow_core.client.async_client import AsyncHetuflow
from hetuflow_core.client.sync_client import Hetuflow
from hetuflow_core.client.task import TaskFunction
from hetuflow_core.errors import TaskFailed
from hetuflow_core.resources.tasks import TaskDetail
from hetuflow_core.states import TaskStatus

R = TypeVar("R")


class EnqueueOptions(TypedDict, total=False):
    """How a function is enqueued, beside what it is given."""

    namespace: str
    # The job it is a task of; one of the function's own name if not given, made when there is none.
    job: str
    priority: int
    run_at: datetime
    idempotency_key: str
    agent: str


@dataclass(frozen=True, slots=True)
class TaskHandle(Generic[R]):
    """A task that was enqueued. Each call asks the server."""

    function: TaskFunction[..., R]
    # As it was when it was enqueued.
    task: TaskDetail
    # None: each call opens one, with address and key of the environment.
    client: Hetuflow | None = None

    @property
    def id(self) -> UUID:
        return self.task.id

    def wait(self, timeout: float | None = None) -> TaskDetail:
        """The task once it has ended, however it did; `TimeoutError` after so many seconds."""
        with _opened(self.client) as client:
            return client.wait(self.id, timeout)

    def result(self, timeout: float | None = None) -> R:
        """What the function returned, as the type it names; `TaskFailed` unless it has succeeded."""
        return result_of(self.function, self.wait(timeout))

    def cancel(self) -> None:
        with _opened(self.client) as client:
            client.cancel(self.id)


@dataclass(frozen=True, slots=True)
class AsyncTaskHandle(Generic[R]):
    """The same for asyncio."""

    function: TaskFunction[..., R]
    task: TaskDetail
    client: AsyncHetuflow | None = None

    @property
    def id(self) -> UUID:
        return self.task.id

    async def wait(self, timeout: float | None = None) -> TaskDetail:  # noqa: ASYNC109 - as the client's own
        async with _opened_async(self.client) as client:
            return await client.wait(self.id, timeout)

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - as the client's own
        return result_of(self.function, await self.wait(timeout))

    async def cancel(self) -> None:
        async with _opened_async(self.client) as client:
            await client.cancel(self.id)


@dataclass(frozen=True, slots=True)
class Enqueuing(Generic[R]):
    """A function together with how it is enqueued."""

    function: TaskFunction[..., R]
    options: EnqueueOptions
    client: Hetuflow | None = None
    async_client: AsyncHetuflow | None = None

    def enqueue(self, **params: Any) -> TaskHandle[R]:
        """Have an agent run it; `Invalid` if the parameters do not fit, before anything is asked."""
        with _opened(self.client) as client:
            task = client.enqueue(self.function, params, **self.options)
        return TaskHandle(self.function, task, self.client)

    async def enqueue_async(self, **params: Any) -> AsyncTaskHandle[R]:
        async with _opened_async(self.async_client) as client:
            task = await client.enqueue(self.function, params, **self.options)
        return AsyncTaskHandle(self.function, task, self.async_client)


def enqueuing(
    function: TaskFunction[..., R],
    client: Hetuflow | AsyncHetuflow | None = None,
    **options: Unpack[EnqueueOptions],
) -> Enqueuing[R]:
    if isinstance(client, AsyncHetuflow):
        return Enqueuing(function, options, async_client=client)
    return Enqueuing(function, options, client)


def result_of(function: TaskFunction[..., R], task: TaskDetail) -> R:
    if task.status != TaskStatus.SUCCEEDED:
        why = next((one.message for one in reversed(task.instances) if one.message), None) or task.reason
        raise TaskFailed(f"The task {task.id} of {task.job} has {task.status}{f': {why}' if why else ''}.")
    output: Mapping[str, Any] | None = task.output
    return function.returned(output)


def _opened(client: Hetuflow | None) -> AbstractContextManager[Hetuflow]:
    return Hetuflow() if client is None else nullcontext(client)


def _opened_async(client: AsyncHetuflow | None) -> AbstractAsyncContextManager[AsyncHetuflow]:
    return AsyncHetuflow() if client is None else nullcontext(client)
