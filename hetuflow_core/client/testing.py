"""Run task functions in tests: no server, no agent, the same conversion of parameters and results."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from hetuflow_core.client.task import TaskCancelled, TaskContext, TaskFunction, entered, output_of

_NOBODY: Final = UUID(int=0)
_THEN: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TaskRun:
    """What came of it; an exception of the function is raised as it is."""

    result: Any
    # As the task would have it.
    output: dict[str, Any] | None
    # Percent and message, in order.
    progress: list[tuple[float, str]] = field(default_factory=list)
    # The one that succeeded.
    attempt: int = 1


def context_for_tests(
    *,
    progress: list[tuple[float, str]] | None = None,
    attempt: int = 1,
    scheduled_at: datetime = _THEN,
    secrets: Mapping[str, str] | None = None,
    cancelled: bool = False,
) -> TaskContext:
    """A context as an agent would give one; what is reported is appended to `progress`."""
    reports: list[tuple[float, str]] = [] if progress is None else progress
    context = TaskContext(
        task_id=_NOBODY,
        instance_id=_NOBODY,
        namespace="default",
        job="test",
        attempt=attempt,
        scheduled_at=scheduled_at,
        secrets=dict(secrets or {}),
        report=lambda percent, message: reports.append((percent, message)),
    )
    if cancelled:
        context.cancelled.set()
    return context


def run_task(
    function: TaskFunction[..., Any],
    params: Mapping[str, Any] | None = None,
    *,
    attempt: int = 1,
    max_attempts: int = 1,
    secrets: Mapping[str, str] | None = None,
    cancelled: bool = False,
) -> TaskRun:
    """Run it here and now, with `params` as a job would give them; a coroutine on a loop of its own.

    It is tried again up to `max_attempts` times while it raises, as `retry` of a job would have it, and the
    last exception is raised as it is. `cancelled` lets it run as one that is to end.
    """
    progress: list[tuple[float, str]] = []
    while True:
        context = context_for_tests(progress=progress, attempt=attempt, secrets=secrets, cancelled=cancelled)
        arguments = function.bind(params or {}, context)
        try:
            result = contextvars.copy_context().run(_called, function, arguments, context)
        except (TaskCancelled, KeyboardInterrupt):
            raise
        except Exception:
            if attempt >= max_attempts:
                raise
            attempt += 1
        else:
            return TaskRun(result, output_of(result), progress, attempt)


def _called(function: TaskFunction[..., Any], arguments: Mapping[str, Any], context: TaskContext) -> Any:
    entered(context)
    result = function(**arguments)
    return asyncio.run(result) if function.is_async else result
