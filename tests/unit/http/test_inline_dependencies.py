"""What handlers depend on is given to them at once, without a task for each."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Litestar, get
from litestar.di import NamedDependency, Provide
from litestar.testing import AsyncTestClient

from hetuflow_server.http.inline_dependencies import resolve_one_by_one

_OK = 200


async def test_no_task_is_made_for_what_a_handler_depends_on() -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    def noted(what: str) -> Provide:
        def provide() -> str:
            tasks.append(asyncio.current_task())
            return what

        return Provide(provide, sync_to_thread=False)

    @get("/")
    async def both(one: NamedDependency[str], other: NamedDependency[str]) -> str:
        tasks.append(asyncio.current_task())
        return f"{one} and {other}"

    app = Litestar([both], dependencies={"one": noted("this"), "other": noted("that")}, openapi_config=None)
    resolve_one_by_one(app)
    async with AsyncTestClient(app) as client:
        answer = await client.get("/")
    assert (answer.status_code, answer.text) == (_OK, "this and that")
    assert len(tasks) == 3
    assert len(set(tasks)) == 1
