"""The ways out of an attempt when something fails on the way: nothing is lost, and nothing counts twice."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec import structs

from hetuflow_agent.attempt import attempt_steps
from hetuflow_agent.attempt.artifacts import ArtifactTransfer
from hetuflow_agent.attempt.attempt import Attempt
from hetuflow_agent.attempt.recovery import Recovery
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.gateway import Session, Unanswered
from hetuflow_agent.records.outbox import JournalEntry
from hetuflow_core.errors import DiskFull
from hetuflow_core.messages import (
    ArtifactOutcome,
    ArtifactStored,
    Assignment,
    Finish,
    ReportOutcome,
    SecretPlace,
    StoreArtifact,
)
from hetuflow_core.states import InstanceStatus as Status
from tests.integration.agent.conftest import Bench
from tests.support.agent.assignments import assignment_of
from tests.support.waiting import wait_until_async

FOR_EVER = "exec sleep 600"


async def finish_of(bench: Bench, assignment: Assignment) -> Finish:
    bench.runner.accept([assignment])
    return await bench.desk.result_of(assignment.instance_id)


async def test_a_start_that_can_neither_be_used_nor_given_back_is_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may count it as running: it hears of it with the results, once it hears anything."""

    async def release(instance_id: UUID, token: UUID) -> ReportOutcome:
        raise Unanswered("gone")

    monkeypatch.setattr(bench.desk, "release", release)
    bench.runner.resize(1)
    long, started = assignment_of(script=FOR_EVER, kill_grace_ms=100), assignment_of(["true"])
    reserved = assignment_of(["true"], due_in_ms=60_000)
    bench.runner.accept([long])
    await wait_until_async(lambda: any(attempt.runs for attempt in bench.runner.attempts()))
    bench.runner.accept([started, reserved])
    await wait_until_async(lambda: started.instance_id in bench.desk.started)
    await bench.runner.stop()
    finish = bench.desk.finishes[started.instance_id]
    assert (finish.status, finish.reason) == (Status.LOST, "agent_shutdown")
    # A reservation expires by itself.
    assert reserved.instance_id not in bench.desk.finishes
    assert not bench.dependencies.claims.holds(reserved.token)


async def test_a_result_is_reported_from_memory_when_the_disk_is_full(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper goes on remembering how it ended."""

    async def put(finish: Finish, directory: str) -> None:
        raise DiskFull("The disk is full.")

    forgotten: list[UUID] = []
    forget = bench.processes.forget
    monkeypatch.setattr(bench.processes, "forget", lambda key: (forgotten.append(key), forget(key)))
    kept = assignment_of(script="exit 3")
    assert (await finish_of(bench, kept)).exit_code == 3
    with monkeypatch.context() as patch:
        patch.setattr(bench.dependencies.outbox, "put", put)
        unkept = assignment_of(script="exit 4")
        assert (await finish_of(bench, unkept)).exit_code == 4
    assert forgotten == [kept.token]


async def test_an_attempt_that_cannot_even_break_off_leaves_its_slot(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(attempt: Attempt) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Attempt, "run", run)
    free = bench.runner.free_slots()
    bench.runner.accept([assignment_of(["true"])])
    assert bench.runner.free_slots() == free - 1
    await wait_until_async(lambda: not bench.runner.attempts())
    assert (bench.runner.free_slots(), bench.runner.under_way) == (free, 0)
    await bench.runner.stop()


async def test_what_breaks_before_anything_has_begun_goes_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def make(directory: ClaimDirectory) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(bench.dependencies.data, "make", make)
    monkeypatch.setattr(bench.dependencies.spares, "take", lambda _: None)
    work = assignment_of(["true"])
    bench.runner.accept([work])
    await wait_until_async(lambda: not bench.runner.attempts())
    assert (bench.desk.released, bench.desk.finishes) == ([work.instance_id], {})
    assert not bench.dependencies.claims.holds(work.token)


async def test_what_breaks_after_its_start_has_failed_and_leaves_nothing_running(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server need not wait for the lease to learn of it."""

    def note_begun(token: UUID) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(bench.dependencies.shipper, "note_begun", note_begun)
    work = assignment_of(script=FOR_EVER)
    bench.runner.accept([work])
    await wait_until_async(lambda: bench.runner.attempts()[0].child)
    child = bench.runner.attempts()[0].child
    finish = await bench.desk.result_of(work.instance_id)
    assert (finish.status, finish.reason) == (Status.FAILED, "executor_error")
    assert "RuntimeError: a bug" in str(finish.message)
    assert child is not None
    assert child.exit.done()


async def test_what_breaks_inside_the_agent_is_ended_too(
    python_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"function": "task_functions:wait_politely", "kwargs": {"mark": str(tmp_path / "mark")}}
    work = structs.replace(
        assignment_of(["true"], due_in_ms=-1_000),
        run=structs.replace(assignment_of(["true"]).run, command=None, executor="python", options=options),
    )

    async def ended_briefly(*_: Any) -> bool:
        await wait_until_async((tmp_path / "mark").exists)
        raise RuntimeError("a bug")

    monkeypatch.setattr(attempt_steps, "_is_brief", ended_briefly)
    python_bench.runner.accept([work])
    await wait_until_async((tmp_path / "mark").exists)
    execution = python_bench.runner.attempts()[0].execution
    finish = await python_bench.desk.result_of(work.instance_id)
    assert (finish.status, finish.reason) == (Status.FAILED, "executor_error")
    assert execution is not None
    assert execution._call.context.cancelled.is_set()  # type: ignore[attr-defined]


class Shelf:
    def __init__(self) -> None:
        self.kept: list[str] = []

    async def store_artifact(self, request: StoreArtifact) -> ArtifactStored:
        self.kept.append(request.path)
        return ArtifactStored(0, ArtifactOutcome.STORED, request.size)


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [(0, Status.FAILED, "artifact_missing"), (3, Status.FAILED, None)],
)
async def test_outputs_are_kept_of_failed_work_too_which_need_not_have_them(
    bench: Bench, code: int, status: Status, reason: str | None
) -> None:
    shelf: Any = Shelf()
    artifacts = ArtifactTransfer(shelf, Session(uuid4()), random.Random(1))
    bench.runner._dependencies = replace(bench.dependencies, artifacts=artifacts)
    work = assignment_of(script=f"echo x > there.txt; exit {code}")
    work = structs.replace(work, run=structs.replace(work.run, outputs=["there.txt", "missing.txt"]))
    finish = await finish_of(bench, work)
    assert (finish.status, finish.reason, finish.exit_code) == (status, reason, code)
    assert shelf.kept == ["there.txt"]


async def test_recovery_holds_everything_the_server_may_still_count_as_ours(bench: Bench) -> None:
    """The registration names it."""
    dependencies = bench.dependencies
    begun, reserved = assignment_of(["true"]), assignment_of(["true"], lease_ms=20_000)
    over = Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0)
    known = Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0)
    await dependencies.outbox.note(JournalEntry(begun, "a", started=True))
    await dependencies.outbox.note(JournalEntry(reserved, "b"))
    for finish in (over, known):
        await dependencies.outbox.put(finish, f"of-{finish.token}")
    await dependencies.outbox.mark_taken([known.token])
    await Recovery(dependencies).start()
    held, shortest = dependencies.claims.snapshot()
    assert {one.token for one in held} == {begun.token, reserved.token, over.token}
    assert shortest == 20.0
    # What the server has is not reported again, and needs nothing any more.
    assert set(bench.desk.finishes) == {begun.instance_id, over.instance_id}
    assert known.token not in {found.finish.token for found in await dependencies.outbox.finished()}


async def test_the_folder_of_failed_work_of_an_earlier_life_is_kept_if_that_is_wanted(bench: Bench) -> None:
    bench.kept.keep_seconds = 600.0
    for status in (Status.FAILED, Status.SUCCEEDED):
        finish = Finish(uuid4(), uuid4(), status)
        folder = bench.dependencies.data.claim(finish.instance_id, finish.token)
        folder.make()
        await bench.dependencies.outbox.put(finish, folder.name)
    await Recovery(bench.dependencies).start()
    for done in bench.desk.finishes.values():
        await bench.dependencies.shipper.taken([done.token])
    (kept,) = bench.dependencies.data.failed.iterdir()
    assert str(
        next(one.instance_id for one in bench.desk.finishes.values() if one.status is Status.FAILED)
    ) in (kept.name)


@pytest.mark.parametrize("given", [True, False])
async def test_a_log_with_secrets_is_not_shipped_before_they_are_known_again(
    bench: Bench, given: bool
) -> None:
    """Those that were given, or were about to be."""
    work = assignment_of(["true"])
    if not given:
        work = structs.replace(
            work, run=structs.replace(work.run, secrets=[SecretPlace("token", env="TOKEN")])
        )
    folder = bench.dependencies.data.claim(work.instance_id, work.token)
    folder.make()
    folder.stream("stdout").write_bytes(b"hunter22")
    if given:
        folder.secrets.write_text('{"token": 1}')
    await bench.dependencies.outbox.note(JournalEntry(work, folder.name))
    recovery = Recovery(bench.dependencies)
    await recovery.start()
    bench.dependencies.shipper.close(work.token)
    await bench.dependencies.shipper.run_once()
    assert bench.book.streams == {}
    assert not bench.dependencies.shipper.drained(work.token)
    assert [token for _, token, _ in recovery.needs_secrets] == ([work.token] if given else [])
    bench.dependencies.shipper.set_secrets(work.token, ["hunter22"])
    await wait_until_async(lambda: bench.dependencies.shipper.drained(work.token))
    assert bench.book.streams == {(work.instance_id, "stdout"): b"********"}
