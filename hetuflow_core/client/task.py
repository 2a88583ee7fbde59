"""`@task`: functions that agents run through their `python` executor.

    from hetuflow_core.client import TaskContext, task

    @task
    def nightly(day: date, context: TaskContext, limit: int = 100) -> dict[str, int]:
        context.progress(10, "reading")
        return {"rows": 3}

A decorated function is called like any other. An agent calls it with the task's parameters, each converted to
the type its annotation names; a parameter annotated `TaskContext` gets the context. What it returns is the
task's output: a mapping as it is, anything else as `{"result": …}`.
"""

from __future__ import annotations

import contextvars
import functools
import importlib
import inspect
import logging
import threading
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, overload
from uuid import UUID

import msgspec

import hetuflow_core.client as package
from hetuflow_core.errors import Fault, Invalid, NotFound

if TYPE_CHECKING:
    from hetuflow_core.client.task_handles import AsyncTaskHandle, Enqueuing, TaskHandle

P = ParamSpec("P")
R = TypeVar("R")

LOGGER: Final = "hetuflow.task"
_CURRENT: Final[contextvars.ContextVar[TaskContext | None]] = contextvars.ContextVar("task", default=None)


class TaskCancelled(Exception):
    """The task is to end: it was cancelled, took too long, or its agent lost contact with the servers."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What a function may know of the task it is run for, and say about it."""

    task_id: UUID
    instance_id: UUID
    namespace: str
    job: str
    attempt: int
    # The instant the task is for.
    scheduled_at: datetime
    # Values of the secrets that `run.secrets` of the job names.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False, kw_only=True)
    # Who is told of progress; percent and message.
    report: Callable[[float, str], None] = field(repr=False)
    # Set when the task is to end; `wait` on it instead of sleeping.
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def logger(self) -> logging.Logger:
        """Its lines go to the task's own log, as whatever the function prints or logs elsewhere."""
        return logging.getLogger(LOGGER)

    def progress(self, percent: float, message: str = "") -> None:
        """Say how far it has come, from 0 to 100; shown with the task while it runs."""
        self.report(min(100.0, max(0.0, percent)), message)

    def check_cancelled(self) -> None:
        """Raise `TaskCancelled` once the task is to end. Call it now and then in long loops."""
        if self.cancelled.is_set():
            raise TaskCancelled("The task is to end.")

    def heartbeat(self) -> None:
        """The same: the agent keeps the task's lease alive by itself, so there is nothing else to do."""
        self.check_cancelled()


def current_task() -> TaskContext | None:
    """The context of the task this code runs for; None outside of one."""
    return _CURRENT.get()


class TaskFunction(Generic[P, R]):
    """A function an agent may run. Calling it calls the function."""

    def __init__(self, function: Callable[P, R], *, process: bool) -> None:
        self.function = function
        self.process = process
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.path}>"

    @property
    def path(self) -> str:
        """What a job file calls it."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    # Read once: working them out takes as long as everything else about a call.
    @functools.cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        return _hints(self.function)

    def enqueue(self, **params: Any) -> TaskHandle[R]:
        """Have an agent run it, on the server the environment names: `HETUFLOW_URL`, `HETUFLOW_API_KEY`.

        The parameters are checked first. The handle waits for the end, or for the result.
        """
        return self.with_options().enqueue(**params)

    async def enqueue_async(self, **params: Any) -> AsyncTaskHandle[R]:
        """The same for asyncio."""
        return await self.with_options().enqueue_async(**params)

    def with_options(self, client: Any = None, **options: Any) -> Enqueuing[R]:
        """The function with other ways to enqueue it: `namespace`, `job`, `priority`, `run_at`,
        `idempotency_key`, `agent`; `client` is used instead of one for each call.
        """
        # By the package, which loads it late: an agent that runs the function needs no client.
        return package.enqueuing(self, client, **options)

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters as JSON has them, if they fit; raise `Invalid` naming every fault."""
        try:
            plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(params)))
        except (TypeError, ValueError) as error:
            raise Invalid(f"The parameters of {self.path} are not plain data ({error}).") from error
        self.bind(plain, None)
        return plain

    def returned(self, output: Mapping[str, Any] | None) -> R:
        """What the function returned, from the output of its task."""
        if output is None:
            return None  # type: ignore[return-value] # a function without a result returns None
        hint = self._hints.get("return", Any)
        alone = output["result"] if set(output) == {"result"} else output
        for value in (output, alone) if hint is not Any else ():
            try:
                result: R = msgspec.convert(value, hint, strict=False)
            except (msgspec.ValidationError, TypeError):
                continue
            return result
        return alone  # type: ignore[return-value] # nothing says what it is

    def bind(self, params: Mapping[str, Any], context: TaskContext | None) -> dict[str, Any]:
        """The arguments, converted to the types the function names; raise `Invalid` naming every fault."""
        arguments: dict[str, Any] = {}
        faults: list[Fault] = []
        left = dict(params)
        hints = self._hints
        takes_any = False
        for name, parameter in self._parameters.items():
            hint = hints.get(name, Any)
            if hint is TaskContext:
                arguments[name] = context
            elif parameter.kind is parameter.VAR_KEYWORD:
                takes_any = True
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                continue
            elif name in left:
                arguments[name] = _converted(name, left.pop(name), hint, faults)
            elif parameter.default is parameter.empty:
                faults.append(Fault(name, "is missing: give it in the task's params."))
        if takes_any:
            arguments |= left
        else:
            faults += [Fault(name, "is not a parameter of the function: remove it.") for name in sorted(left)]
        if faults:
            raise Invalid(f"The parameters do not fit {self.path}.", faults=faults)
        return arguments


@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...
@overload
def task(*, process: bool = False) -> Callable[[Callable[P, R]], TaskFunction[P, R]]: ...
def task(
    function: Callable[P, R] | None = None, /, *, process: bool = False
) -> TaskFunction[P, R] | Callable[[Callable[P, R]], TaskFunction[P, R]]:
    """Let agents run this function. With `process=True` each run gets a process of its own.

    Coroutine functions run on an event loop the agent's tasks share, others in a thread each. Neither can be
    made to end if the function does not listen; what runs long, takes much memory or may hang belongs into a
    process.
    """
    if function is not None:
        return TaskFunction(function, process=process)
    return lambda decorated: TaskFunction(decorated, process=process)


def find_task(path: str) -> TaskFunction[..., Any]:
    """The task function called `module:name`; raise `NotFound` when there is none."""
    module_name, _, name = path.partition(":")
    found = getattr(importlib.import_module(module_name), name, None)
    if not isinstance(found, TaskFunction):
        raise NotFound(f"{path} is no function with @task: decorate it, or correct the job.")
    return found


def entered(context: TaskContext) -> contextvars.Token[TaskContext | None]:
    """Make this the current task of the calling context; for those who run tasks."""
    return _CURRENT.set(context)


def output_of(result: Any) -> dict[str, Any] | None:
    """What a function returned, as the task's output; raise `Invalid` for what JSON cannot hold."""
    if result is None:
        return None
    try:
        plain = msgspec.json.decode(msgspec.json.encode(result))
    except (TypeError, ValueError) as error:
        raise Invalid(f"The function returned what JSON cannot hold ({error}): return plain data.") from error
    return plain if isinstance(plain, dict) else {"result": plain}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        return {}  # names that exist for the type checker alone: nothing to convert to


def _converted(name: str, value: Any, hint: Any, faults: list[Fault]) -> Any:
    if hint is Any:
        return value
    try:
        # Not strict: params that came through a template or a command line are texts.
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        faults.append(Fault(name, f"{error}."))
    except TypeError:
        return value  # a type nothing can be converted to: the function knows what to do
    return None
