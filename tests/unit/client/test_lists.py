"""Whatever the REST API lists, both clients iterate over, page by page."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from hetuflow_core.client import AsyncHetuflow, Hetuflow
from hetuflow_core.client.exchange import Send
from tests.support.http.routes import usual_document
from tests.unit.client.plan_script import good

PREFIX = "/api/v1"
# Ask elsewhere when they are given more.
ALSO_ASKED: dict[str, dict[str, str]] = {"agent_commands": {"agent_id": "x"}}
# Lists that need no iterator, and why.
EXEMPT: dict[str, str] = {}
# A list is what can be asked for page by page.
LISTS: dict[str, re.Pattern[str]] = {
    operation["operationId"]: re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path.removeprefix(PREFIX)))
    for path, item in usual_document()["paths"].items()
    for method, operation in item.items()
    if method == "get" and any(one["name"] == "cursor" for one in operation.get("parameters", ()))
}


def _arguments(build: Any) -> list[str]:
    return ["x" for one in inspect.signature(build).parameters.values() if one.default is one.empty]


def _pages(plan: Any) -> list[str]:
    """The path an iterator asks, once it went on to a second page there."""
    first = next(plan)
    if not isinstance(first, Send) or not any(one.fullmatch(first.request.path) for one in LISTS.values()):
        return []
    second = plan.send(good({"items": [], "next_cursor": "on", "total": 0, "total_capped": False}))
    same = isinstance(second, Send) and second.request.path == first.request.path
    return [first.request.path] if same and ("cursor", "on") in second.request.query else []


def _iterators() -> dict[str, str]:
    """Path → the client's method that iterates over what is listed there."""
    found = {}
    for name, method in vars(Hetuflow).items():
        build = getattr(method, "__wrapped__", None)
        if build is None or not build.__annotations__["return"].startswith("Stream"):
            continue
        for more in ({}, *([ALSO_ASKED[name]] if name in ALSO_ASKED else [])):
            found |= dict.fromkeys(_pages(build(*_arguments(build), **more)), name)
    return found


ITERATORS = _iterators()


@pytest.mark.parametrize("operation", sorted(LISTS))
async def test_every_list_has_an_iterator_in_both_clients(operation: str) -> None:
    names = [name for path, name in ITERATORS.items() if LISTS[operation].fullmatch(path)]
    if operation in EXEMPT:
        assert not names, "it has one, and needs no exemption any more"
        return
    (name,) = names
    arguments = _arguments(vars(Hetuflow)[name].__wrapped__)
    with Hetuflow() as blocking:
        assert isinstance(getattr(blocking, name)(*arguments), Generator)
    async with AsyncHetuflow() as awaited:
        assert isinstance(getattr(awaited, name)(*arguments), AsyncGenerator)


def test_there_are_lists() -> None:
    assert len(LISTS) > 20
    assert EXEMPT.keys() <= LISTS.keys()
