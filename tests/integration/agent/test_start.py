"""From a claim to its work: what the server says to a start, and what comes in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec import structs

from hetuflow_agent.attempt.recovery import Readoption, Recovery, Unfinished
from hetuflow_agent.executors.environment import marker_of
from hetuflow_agent.gateway import Session, Unanswered
from hetuflow_agent.processes.command import Command
from hetuflow_agent.records.outbox import JournalEntry
from hetuflow_core.errors import Conflict
from hetuflow_core.messages import Assignment, Cancel, ReportOutcome
from hetuflow_core.states import InstanceStatus as Status
from tests.integration.agent.conftest import Bench
from tests.support.agent.assignments import assignment_of
from tests.support.agent.executors import assignment_for
from tests.support.waiting import wait_until_async

FOR_EVER = "exec sleep 600"


def answer_with(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, answer: Callable[[int], ReportOutcome]
) -> None:
    """Have starts answered by `answer`, which is told how many came before."""

    async def commit_start(instance_id: UUID, token: UUID) -> ReportOutcome:
        bench.desk.started.append(instance_id)
        return answer(len(bench.desk.started) - 1)

    monkeypatch.setattr(bench.desk, "commit_start", commit_start)


def call(mark: Path, *, due_in_ms: int, **facts: Any) -> Assignment:
    options = {"function": "task_functions:wait_politely", "kwargs": {"mark": str(mark)}}
    return structs.replace(assignment_for("python", options, due_in_ms=due_in_ms), **facts)


async def test_a_start_is_asked_for_until_there_is_an_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(before: int) -> ReportOutcome:
        if before < 2:
            raise Unanswered("gone")
        return ReportOutcome.OK

    answer_with(bench, monkeypatch, answer)
    work = assignment_of(["true"])
    bench.runner.accept([work])
    assert (await bench.desk.result_of(work.instance_id)).status is Status.SUCCEEDED
    assert bench.desk.started == [work.instance_id] * 3


async def test_a_start_that_nobody_answers_is_given_up_when_its_lease_would_be_over(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the server made of it, by then somebody else may have it."""

    def answer(before: int) -> ReportOutcome:
        raise Unanswered("gone")

    answer_with(bench, monkeypatch, answer)
    work = assignment_of(["touch", str(tmp_path / "ran")], due_in_ms=-20_000, lease_ms=5_000)
    bench.runner.accept([work])
    await wait_until_async(lambda: not bench.runner.attempts())
    assert bench.desk.started == [work.instance_id]
    assert not bench.dependencies.claims.holds(work.token)
    assert not (tmp_path / "ran").exists()


async def test_a_session_that_was_replaced_starts_nothing_and_does_not_ask_again(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(before: int) -> ReportOutcome:
        raise Conflict("another process is this agent")

    answer_with(bench, monkeypatch, answer)
    work = assignment_of(["touch", str(tmp_path / "ran")])
    bench.runner.accept([work])
    await wait_until_async(lambda: not bench.runner.attempts())
    assert bench.desk.started == [work.instance_id]
    assert not (tmp_path / "ran").exists()


async def test_the_lease_counts_from_when_the_start_was_sent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, sent = bench.dependencies.clock, list[float]()
    answered = asyncio.Event()

    async def commit_start(instance_id: UUID, token: UUID) -> ReportOutcome:
        sent.append(clock.boottime())
        await answered.wait()
        return ReportOutcome.OK

    monkeypatch.setattr(bench.desk, "commit_start", commit_start)
    bench.runner.accept([assignment_of(script=FOR_EVER, due_in_ms=1_100)])
    (attempt,) = bench.runner.attempts()
    await wait_until_async(lambda: sent and clock.boottime() > sent[0] + 0.05)
    answered.set()
    await wait_until_async(lambda: attempt.child is not None)
    assert attempt.came_at < attempt.renewed_at <= sent[0]


async def test_cancelled_while_its_start_is_under_way_it_never_runs(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = assignment_of(["touch", str(tmp_path / "ran")])

    def answer(before: int) -> ReportOutcome:
        bench.runner.cancel([Cancel(work.instance_id, work.token)])
        return ReportOutcome.OK

    answer_with(bench, monkeypatch, answer)
    bench.runner.accept([work])
    finish = await bench.desk.result_of(work.instance_id)
    assert (finish.status, finish.started_at) == (Status.CANCELLED, None)
    assert not (tmp_path / "ran").exists()


async def test_work_inside_the_agent_that_is_cancelled_before_it_is_due_never_runs(
    python_bench: Bench, tmp_path: Path
) -> None:
    """Its start is committed up to a second before."""
    work = call(tmp_path / "mark", due_in_ms=900)
    python_bench.runner.accept([work])
    await wait_until_async(lambda: python_bench.desk.started)
    python_bench.runner.cancel([Cancel(work.instance_id, work.token)])
    finish = await python_bench.desk.result_of(work.instance_id)
    assert (finish.status, finish.started_at) == (Status.CANCELLED, None)
    assert not (tmp_path / "mark").exists()


async def test_work_inside_the_agent_whose_lease_is_lost_before_it_is_due_goes_back(
    python_bench: Bench, tmp_path: Path
) -> None:
    """A host that slept meanwhile, say: somebody else may have it by now."""
    work = call(tmp_path / "mark", due_in_ms=700, lease_ms=500)
    python_bench.runner.accept([work])
    await wait_until_async(lambda: not python_bench.runner.attempts())
    assert python_bench.desk.released == [work.instance_id]
    assert not (tmp_path / "mark").exists()


async def test_that_work_inside_the_agent_has_begun_is_on_record(python_bench: Bench, tmp_path: Path) -> None:
    """Nobody but this process could tell how it ends."""
    work = call(tmp_path / "mark", due_in_ms=-1_000)
    python_bench.runner.accept([work])
    await wait_until_async((tmp_path / "mark").exists)
    (entry,) = await python_bench.dependencies.outbox.journal()
    assert (entry.assignment, entry.started) == (work, True)


async def test_a_claim_of_an_earlier_life_asks_for_its_start_whatever_it_is(
    python_bench: Bench, tmp_path: Path
) -> None:
    """The server has given it back meanwhile, or to us: only it can tell."""
    bench = python_bench
    wanted, stale = (call(tmp_path / name, due_in_ms=-1_000) for name in ("wanted", "stale"))
    for work in (wanted, stale):
        folder = bench.dependencies.data.claim(work.instance_id, work.token)
        folder.make()
        await bench.dependencies.outbox.note(JournalEntry(work, folder.name))

    async def commit_start(instance_id: UUID, token: UUID) -> ReportOutcome:
        bench.desk.started.append(instance_id)
        return ReportOutcome.OK if token == wanted.token else ReportOutcome.STALE

    bench.desk.commit_start = commit_start  # type: ignore[method-assign]
    recovery = Recovery(bench.dependencies)
    await recovery.start()
    await Readoption(recovery, Session(uuid4()), bench.runner).start()
    await wait_until_async((tmp_path / "wanted").exists)
    assert set(bench.desk.started) == {wanted.instance_id, stale.instance_id}
    await wait_until_async(lambda: len(bench.runner.attempts()) == 1)
    assert not (tmp_path / "stale").exists()


async def test_a_process_of_an_earlier_life_goes_on_if_it_is_still_ours_and_is_ended_if_not(
    bench: Bench,
) -> None:
    ours, given_away, over = (assignment_of(script=FOR_EVER, kill_grace_ms=100) for _ in range(3))
    unfinished = []
    for work in (ours, given_away, over):
        folder = bench.dependencies.data.claim(work.instance_id, work.token)
        folder.make()
        argv = ["true"] if work is over else ["sleep", "600"]
        command = Command(
            key=work.token,
            argv=argv,
            cwd=folder.work,
            env={},
            stdout=folder.at("stdout"),
            stderr=folder.at("stderr"),
            marker=marker_of(work.instance_id),
        )
        child = bench.processes.spawn(command)
        unfinished.append(Unfinished(JournalEntry(work, folder.name), folder, child))
    first, second, third = (one.child for one in unfinished)
    await wait_until_async(lambda: first.running and second.running and third.exit.done())
    recovery = Recovery(bench.dependencies)
    recovery.unfinished = unfinished
    session = Session(uuid4(), adopted=frozenset({ours.instance_id}))
    await Readoption(recovery, session, bench.runner).start()
    # The end of what has ended is told, whoever has it: the server judges that.
    assert (await bench.desk.result_of(over.instance_id)).status is Status.SUCCEEDED
    await wait_until_async(lambda: len(bench.runner.attempts()) == 1)
    assert bench.runner.attempts()[0].assignment == ours
    assert (first.exit.done(), second.exit.done()) == (False, True)
    assert set(bench.desk.finishes) == {over.instance_id}
    assert bench.runner.free_slots() == 49
