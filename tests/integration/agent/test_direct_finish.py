"""Brief work inside the agent: its end may be the first the server hears of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_core.messages import Assignment, Cancel, ReportOutcome
from hetuflow_core.states import InstanceStatus as Status
from tests.integration.agent.conftest import Bench
from tests.support.agent.executors import assignment_for
from tests.support.waiting import wait_until_async


def call(function: str, *, due_in_ms: int = -1_000, **kwargs: Any) -> Assignment:
    options = {"function": f"task_functions:{function}", "kwargs": kwargs}
    return assignment_for("python", options, due_in_ms=due_in_ms)


async def test_what_is_over_at_once_is_reported_without_a_start(python_bench: Bench) -> None:
    good, bad = call("add", a=1), call("fail", message="no")
    python_bench.runner.accept([good, bad])
    finish = await python_bench.desk.result_of(good.instance_id)
    assert (finish.status, finish.output) == (Status.SUCCEEDED, {"result": 1.5})
    assert finish.started_at is not None
    assert (await python_bench.desk.result_of(bad.instance_id)).status is Status.FAILED
    assert python_bench.desk.started == []


@pytest.mark.parametrize(
    ("function", "kwargs", "made"),
    [("add", {"a": 1}, 1), ("speak_async", {"who": "x"}, 1), ("fail", {"message": "no"}, 3)],
)
async def test_the_folder_of_a_call_is_used_again(
    python_bench: Bench, function: str, kwargs: dict[str, Any], made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making one takes longer than the call does; what a failed one has left is kept for people to see."""
    bench, seen = python_bench, list[ClaimDirectory]()
    bench.kept.keep_seconds = 3_600.0
    make = ClaimDirectory.make

    def note(directory: ClaimDirectory) -> None:
        seen.append(directory)
        make(directory)

    monkeypatch.setattr(ClaimDirectory, "make", note)
    for _ in range(3):
        one = call(function, **kwargs)
        bench.runner.accept([one])
        await bench.desk.result_of(one.instance_id)
        await wait_until_async(partial(bench.dependencies.shipper.drained, one.token))
        await bench.dependencies.shipper.taken([one.token])
    assert len(seen) == made


async def test_what_lasts_commits_its_start_meanwhile(python_bench: Bench, tmp_path: Path) -> None:
    lasting = call("wait_politely", mark=str(tmp_path / "mark"))
    python_bench.runner.accept([lasting])
    await wait_until_async(lambda: python_bench.desk.started == [lasting.instance_id])
    assert (tmp_path / "mark").exists(), "it had begun"
    python_bench.runner.cancel([Cancel(lasting.instance_id, lasting.token)])
    assert (await python_bench.desk.result_of(lasting.instance_id)).status is Status.CANCELLED


@pytest.mark.parametrize("outcome", [ReportOutcome.CANCELLED, ReportOutcome.STALE])
async def test_what_lasts_and_is_not_wanted_any_more_is_ended(
    python_bench: Bench, tmp_path: Path, outcome: ReportOutcome
) -> None:
    """Cancelled meanwhile, or its reservation has expired and somebody else has it."""
    python_bench.desk.outcome = outcome
    lasting = call("wait_politely", mark=str(tmp_path / "mark"))
    python_bench.runner.accept([lasting])
    await wait_until_async(lambda: python_bench.desk.started == [lasting.instance_id])
    await wait_until_async(lambda: not python_bench.runner.attempts())
    assert python_bench.desk.finishes == {}
    assert not python_bench.dependencies.claims.holds(lasting.token)
    assert await python_bench.dependencies.outbox.journal() == []


async def test_a_cancel_reaches_what_has_begun_so(python_bench: Bench, tmp_path: Path) -> None:
    lasting = call("wait_politely", mark=str(tmp_path / "mark"))
    python_bench.runner.accept([lasting])
    await wait_until_async((tmp_path / "mark").exists)
    python_bench.runner.cancel([Cancel(lasting.instance_id, lasting.token)])
    assert (await python_bench.desk.result_of(lasting.instance_id)).status is Status.CANCELLED


async def test_what_was_not_due_when_it_came_commits_its_start(python_bench: Bench) -> None:
    later = call("add", a=1, due_in_ms=200)
    python_bench.runner.accept([later])
    assert (await python_bench.desk.result_of(later.instance_id)).status is Status.SUCCEEDED
    assert python_bench.desk.started == [later.instance_id]


@pytest.mark.parametrize("function", ["wait_politely", "wait_async", "wait_deaf"])
async def test_work_inside_the_agent_has_its_timeout(
    python_bench: Bench, tmp_path: Path, function: str
) -> None:
    lasting = call(function, mark=str(tmp_path / "mark"), due_in_ms=100)
    lasting = structs.replace(lasting, timeout_ms=300, kill_grace_ms=100)
    python_bench.runner.accept([lasting])
    finish = await python_bench.desk.result_of(lasting.instance_id)
    assert (finish.status, finish.reason) == (Status.TIMED_OUT, None)
    assert finish.started_at is not None
    assert finish.finished_at is not None
    assert finish.finished_at - finish.started_at >= 300
