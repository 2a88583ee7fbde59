"""Operations as methods of both clients, each declared once.

A type checker reads the overloads of `__get__`, so it knows every signature for each client. At run time
`Operations` gives each client plain functions: calls cost no descriptor, and `help()` shows methods.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from hetuflow_core.client.exchange import Plan, Stream

if TYPE_CHECKING:
    from hetuflow_core.client.async_client import AwaitedTransport
    from hetuflow_core.client.sync_client import BlockingTransport

P = ParamSpec("P")
T = TypeVar("T")


class Call(Generic[P, T]):
    """An operation with one result: the blocking client returns it, the other one awaits it."""

    def __init__(self, build: Callable[P, Plan[T]]) -> None:
        self._build = build

    @overload
    def __get__(self, client: BlockingTransport, kind: Any = None) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: AwaitedTransport, kind: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(
        self, client: None, kind: type[BlockingTransport]
    ) -> Callable[Concatenate[BlockingTransport, P], T]: ...

    @overload
    def __get__(
        self, client: None, kind: type[AwaitedTransport]
    ) -> Callable[Concatenate[AwaitedTransport, P], Coroutine[Any, Any, T]]: ...

    def __get__(self, client: Any, kind: Any = None) -> Any:
        return self

    def method_of(self, client: type[Any]) -> Callable[..., Any]:
        build = self._build

        @functools.wraps(build)
        def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return self.carry_out(build(*args, **kwargs))

        @functools.wraps(build)
        async def awaited_call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return await self.carry_out(build(*args, **kwargs))

        return _with_self(awaited_call if inspect.iscoroutinefunction(client.carry_out) else call, build)


class Iteration(Generic[P, T]):
    """An operation with many results, iterated over with `for` or `async for`."""

    def __init__(self, build: Callable[P, Stream[T]]) -> None:
        self._build = build

    @overload
    def __get__(
        self, client: BlockingTransport, kind: Any = None
    ) -> Callable[P, Generator[T, None, None]]: ...

    @overload
    def __get__(self, client: AwaitedTransport, kind: Any = None) -> Callable[P, AsyncGenerator[T, None]]: ...

    @overload
    def __get__(
        self, client: None, kind: type[BlockingTransport]
    ) -> Callable[Concatenate[BlockingTransport, P], Generator[T, None, None]]: ...

    @overload
    def __get__(
        self, client: None, kind: type[AwaitedTransport]
    ) -> Callable[Concatenate[AwaitedTransport, P], AsyncGenerator[T, None]]: ...

    def __get__(self, client: Any, kind: Any = None) -> Any:
        return self

    def method_of(self, _client: type[Any]) -> Callable[..., Any]:
        build = self._build

        @functools.wraps(build)
        def iterate(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return self.iterate(build(*args, **kwargs))

        return _with_self(iterate, build)


def _with_self(method: Callable[..., Any], build: Callable[..., Any]) -> Callable[..., Any]:
    """Let help() show the parameters of `build` behind a `self`."""
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    signature = inspect.signature(build)
    shown = signature.replace(parameters=[own, *signature.parameters.values()], return_annotation=own.empty)
    vars(method)["__signature__"] = shown
    return method
