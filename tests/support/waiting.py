"""Waiting for a condition instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_INTERVAL = 0.01


def wait_until(predicate: Callable[[], T], *, timeout: float = 60.0, what: str = "the condition") -> T:
    """The first truthy answer of `predicate`; fails the test when there is none in time."""
    deadline = time.monotonic() + timeout
    while not (answer := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {timeout:g} seconds")
        time.sleep(_INTERVAL)
    return answer


def waits_for_lock(connection: Any) -> bool:
    """Whether somebody in the database of this connection waits for somebody else."""
    row = connection.execute(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()
    return bool(row[0] if isinstance(row, tuple) else row["count"])


async def wait_until_async(
    predicate: Callable[[], Any],
    *,
    timeout: float = 60.0,  # noqa: ASYNC109 (the message names what was waited for, asyncio.timeout cannot)
    what: str = "the condition",
) -> Any:
    """As `wait_until`, letting the event loop go on; `predicate` may be a coroutine function."""
    deadline = time.monotonic() + timeout
    while True:
        answer = predicate()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {timeout:g} seconds")
        await asyncio.sleep(_INTERVAL)
