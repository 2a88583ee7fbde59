"""Task functions by themselves: what they are given, what they give."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

from hetuflow_core.client import TaskCancelled, TaskContext, current_task, task
from hetuflow_core.client.task import TaskFunction, find_task, output_of
from hetuflow_core.client.task_handles import result_of
from hetuflow_core.client.testing import context_for_tests, run_task
from hetuflow_core.errors import Invalid, NotFound, TaskFailed
from hetuflow_core.resources.tasks import TaskDetail
from tests.support.agent.pythonjobs import task_functions

NOW = datetime(2026, 7, 1, tzinfo=UTC)


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


@dataclass
class Order:
    item: str
    due: date


@task
def place(order: Order, copies: int = 1) -> list[Order]:
    return [order] * copies


@task
def flaky(context: TaskContext, good: int) -> int:
    if context.attempt < good:
        raise RuntimeError("not yet")
    return context.attempt


def test_parameters_are_checked_and_made_plain_before_they_are_sent() -> None:
    assert place.check({"order": Order("a", date(2026, 7, 1)), "copies": "2"}) == {
        "order": {"item": "a", "due": "2026-07-01"},
        "copies": "2",
    }
    with pytest.raises(Invalid) as refused:
        place.check({"order": {"item": 5}, "more": 1})
    assert {fault.field for fault in refused.value.faults} == {"order", "more"}
    with pytest.raises(Invalid, match="plain data"):
        place.check({"order": object()})


def test_results_come_back_as_the_type_the_function_names() -> None:
    orders = [Order("a", date(2026, 7, 1))]
    output = output_of(orders)
    assert place.returned(output) == orders
    assert report.returned({"day": "x"}) == {"day": "x"}
    assert later.returned({"result": [1.5]}) == [1.5]
    assert flaky.returned({"result": 3}) == 3
    assert place.returned(None) is None


def test_functions_are_tried_again_as_a_job_would() -> None:
    run = run_task(flaky, {"good": 3}, max_attempts=3)
    assert (run.result, run.attempt) == (3, 3)
    with pytest.raises(RuntimeError, match="not yet"):
        run_task(flaky, {"good": 3}, max_attempts=2)


def test_secrets_and_an_end_can_be_given() -> None:
    @task
    def listen(context: TaskContext) -> str:
        context.check_cancelled()
        return context.secrets["token"]

    assert run_task(listen, secrets={"token": "t"}).result == "t"
    with pytest.raises(TaskCancelled):
        run_task(listen, cancelled=True, max_attempts=3)


def test_a_result_is_there_only_if_the_task_has_succeeded() -> None:
    failed = TaskDetail(
        *(UUID(int=1), "default", "place", UUID(int=2), 1, "failed", "exit_code", {}, 500),
        *(NOW, NOW, 1, 0, 1, None, None, NOW, NOW),
    )
    with pytest.raises(TaskFailed, match="has failed"):
        result_of(place, failed)
    succeeded = msgspec.structs.replace(failed, status="succeeded", output={"result": []})
    assert result_of(place, succeeded) == []
