"""Task functions by themselves: what they are given, what they give."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest

from hetuflow_core.client import TaskCancelled, TaskContext, current_task, task
from hetuflow_core.client.task import TaskFunction, find_task, output_of
from hetuflow_core.client.testing import context_for_tests, run_task
from hetuflow_core.errors import Invalid, NotFound
from tests.support.pythonjobs import task_functions


@task
def report(day: date, ids: list[UUID], context: TaskContext, limit: int = 10) -> dict[str, Any]:
    context.progress(150, "too much")
    context.progress(-1)
    current = current_task()
    return {"day": day, "ids": ids, "limit": limit, "same": current is context}


@task
async def later(seconds: float) -> list[float]:
    return [seconds]


@task
def whatever(anything, *, more=1):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - what it is about
    return [anything, more]


def test_a_task_is_called_like_any_function() -> None:
    assert task_functions.add(1, b=2) == 3
    assert task_functions.add.__name__ == "add"
    assert task_functions.add.path == f"{task_functions.__name__}:add"


def test_parameters_are_converted_to_their_types() -> None:
    ids = ["01890f3e-7b3c-7cc0-98c4-dc0c0c07398f"]
    run = run_task(report, {"day": "2026-07-01", "ids": ids, "limit": "7"})
    assert run.result == {"day": date(2026, 7, 1), "ids": [UUID(ids[0])], "limit": 7, "same": True}
    assert run.output == {"day": "2026-07-01", "ids": ids, "limit": 7, "same": True}
    assert run.progress == [(100.0, "too much"), (0.0, "")]
    assert current_task() is None


def test_coroutines_run_too() -> None:
    assert run_task(later, {"seconds": 1}).output == {"result": [1.0]}


def test_parameters_without_a_type_stay_as_they_are() -> None:
    assert run_task(whatever, {"anything": {"a": 1}}).result == [{"a": 1}, 1]


def test_every_fault_is_named() -> None:
    with pytest.raises(Invalid) as raised:
        report.bind({"day": "tomorrow", "unknown": 1, "limit": [1]}, context_for_tests())
    assert [fault.field for fault in raised.value.faults] == ["day", "ids", "limit", "unknown"]


def test_what_is_left_over_goes_where_anything_may_go() -> None:
    run = run_task(task_functions.typed, {"day": "2026-01-02", "order": {"item": "x"}, "extra": 1})
    assert run.output == {"day": "2026-01-02", "item": "x", "count": 1, "attempt": 1, "extra": 1}


def test_a_context_can_be_cancelled() -> None:
    context = context_for_tests(scheduled_at=datetime(2026, 1, 1, tzinfo=UTC))
    context.heartbeat()
    context.cancelled.set()
    with pytest.raises(TaskCancelled):
        context.check_cancelled()


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (None, None),
        ({"a": 1}, {"a": 1}),
        (3, {"result": 3}),
        ([date(2026, 1, 1)], {"result": ["2026-01-01"]}),
    ],
)
def test_results_become_outputs(result: Any, output: Any) -> None:
    assert output_of(result) == output


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(Invalid):
        output_of(object())


def test_only_tasks_are_found() -> None:
    assert isinstance(find_task(task_functions.add.path), TaskFunction)
    for name in ("not_a_task", "nothing", "time"):
        with pytest.raises(NotFound):
            find_task(f"{task_functions.__name__}:{name}")


def test_a_process_is_asked_for_by_the_decorator() -> None:
    assert not task_functions.add.process
    assert task_functions.in_process.process
