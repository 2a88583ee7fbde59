"""What a heartbeat renews, stops and hands on, and what happens to work that nobody renews."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec import structs

from hetuflow_agent.attempt.attempt import Attempt
from hetuflow_agent.gateway import Session, Unanswered
from hetuflow_agent.host.usage import HostMeter
from hetuflow_agent.loops.heartbeat import Heartbeat
from hetuflow_core.agent.commands import CommandKind
from hetuflow_core.messages import (
    Assignment,
    Cancel,
    Command,
    Heartbeat as HeartbeatMessage,
    HeartbeatKept,
    Held,
)
from hetuflow_core.runtime.clock import ManualClock
from hetuflow_core.states import InstanceStatus as Status
from tests.integration.agent.conftest import Bench
from tests.support.agent.assignments import assignment_of
from tests.support.agent.executors import assignment_for
from tests.support.waiting import wait_until_async

FOR_EVER = "exec sleep 600"


@dataclass
class Wire:
    """The other end: takes its time, keeps everything it is not told to leave out, or is silent."""

    clock: ManualClock
    takes: float = 0.0
    silent: bool = False
    leaves_out: set[Any] = field(default_factory=set)
    cancels: list[Cancel] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    heard: list[HeartbeatMessage] = field(default_factory=list)

    def heartbeat(self, message: HeartbeatMessage, *, timeout: float) -> HeartbeatKept:
        self.heard.append(message)
        self.clock.advance(self.takes)
        if self.silent:
            raise Unanswered("nobody is there")
        kept = [one.instance_id for one in message.held if one.instance_id not in self.leaves_out]
        return HeartbeatKept(0, kept, self.cancels, self.commands)

    def close(self) -> None:
        pass


@dataclass
class Beating:
    bench: Bench
    heartbeat: Heartbeat
    wire: Wire
    clock: ManualClock
    told: list[Command]

    def ask(self, *assignments: Assignment) -> float:
        held = [Held(one.instance_id, one.token) for one in assignments]
        return self.heartbeat._ask(self.wire, held, None, 5.0)  # type: ignore[arg-type]


@pytest.fixture
def beating(bench: Bench, tmp_path: Path) -> Beating:
    """With a clock that stands still, ahead of the one that attempts begin by."""
    clock = ManualClock(datetime.now(UTC), seconds=bench.dependencies.clock.boottime() + 1_000)
    wire, told = Wire(clock), list[Command]()
    heartbeat = Heartbeat(
        lambda: wire,  # type: ignore[arg-type,return-value]
        Session(uuid4()),
        bench.dependencies.claims,
        bench.runner,
        HostMeter(tmp_path),
        on_commands=told.extend,
        clock=clock,
        rng=random.Random(1),
    )
    return Beating(bench, heartbeat, wire, clock, told)


@asynccontextmanager
async def running(heartbeat: Heartbeat) -> AsyncIterator[None]:
    await heartbeat.start()
    try:
        yield
    finally:
        await heartbeat.stop()


async def attempt_inside(bench: Bench, function: str, mark: Path, **facts: Any) -> Attempt:
    """One at work in the agent, its start committed: so nothing renews it from here on."""
    options = {"function": f"task_functions:{function}", "kwargs": {"mark": str(mark)}}
    assignment = structs.replace(assignment_for("python", options, due_in_ms=100), lease_ms=10_000, **facts)
    bench.runner.accept([assignment])
    await wait_until_async(mark.exists)
    assert bench.desk.started == [assignment.instance_id]
    (attempt,) = bench.runner.attempts()
    return attempt


async def started(bench: Bench, *assignments: Assignment) -> dict[Any, Attempt]:
    bench.runner.accept(assignments)
    await wait_until_async(lambda: all(attempt.runs for attempt in bench.runner.attempts()))
    return {attempt.assignment.token: attempt for attempt in bench.runner.attempts()}


@pytest.mark.parametrize("function", ["wait_politely", "wait_async"])
async def test_work_inside_the_agent_is_told_to_end_when_most_of_its_lease_is_over(
    python_bench: Bench, tmp_path: Path, function: str
) -> None:
    bench = python_bench
    attempt = await attempt_inside(bench, function, tmp_path / "mark")
    # From a thread, as the fence does.
    await asyncio.to_thread(bench.runner.hold_to_leases, attempt.renewed_at + 5.9)
    assert attempt.ending is None
    await asyncio.to_thread(bench.runner.hold_to_leases, attempt.renewed_at + 6.1)
    finish = await bench.desk.result_of(attempt.assignment.instance_id)
    assert (finish.status, finish.reason) == (Status.LOST, "lease_lost")


async def test_the_fence_tells_work_inside_the_agent_without_the_event_loop(
    python_bench: Bench, tmp_path: Path
) -> None:
    """It may be blocked by whatever keeps the heartbeats from coming through; later it is made to end."""
    attempt = await attempt_inside(python_bench, "wait_deaf", tmp_path / "mark")
    execution = attempt.execution
    assert execution is not None
    context = execution._call.context  # type: ignore[attr-defined]
    thread = execution._thread  # type: ignore[attr-defined]
    # Nothing is awaited here, so the event loop has no part in this.
    python_bench.runner.hold_to_leases(attempt.renewed_at + 6.1)
    assert context.cancelled.is_set()
    python_bench.runner.hold_to_leases(attempt.renewed_at + 8.4)
    thread.join(0.1)
    assert thread.is_alive()
    python_bench.runner.hold_to_leases(attempt.renewed_at + 8.6)
    thread.join(30)
    assert not thread.is_alive()
    finish = await python_bench.desk.result_of(attempt.assignment.instance_id)
    assert (finish.status, finish.reason) == (Status.LOST, "lease_lost")


async def test_work_inside_the_agent_that_may_go_on_without_its_lease_does(
    python_bench: Bench, tmp_path: Path
) -> None:
    attempt = await attempt_inside(python_bench, "wait_politely", tmp_path / "mark", on_lost="continue")
    python_bench.runner.hold_to_leases(attempt.renewed_at + 1_000)
    assert attempt.ending is None
    execution = attempt.execution
    assert execution is not None
    assert not execution._call.context.cancelled.is_set()  # type: ignore[attr-defined]
    python_bench.runner.cancel([Cancel(attempt.assignment.instance_id, attempt.assignment.token)])
    assert (await python_bench.desk.result_of(attempt.assignment.instance_id)).status is Status.CANCELLED


async def test_the_fence_watches_by_itself_while_the_server_is_silent(
    python_bench: Bench, beating: Beating, tmp_path: Path
) -> None:
    attempt = await attempt_inside(python_bench, "wait_politely", tmp_path / "mark")
    beating.wire.silent = True
    async with running(beating.heartbeat):
        finish = await python_bench.desk.result_of(attempt.assignment.instance_id)
    assert (finish.status, finish.reason) == (Status.LOST, "lease_lost")


async def test_a_lease_counts_from_when_the_heartbeat_was_sent(
    beating: Beating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may have renewed it as early as that; an answer on its way for long is no longer lease."""
    bench, at = beating.bench, beating.clock.boottime()
    kept, left_out = assignment_of(script=FOR_EVER), assignment_of(script=FOR_EVER, on_lost="continue")
    attempts = await started(bench, kept, left_out)
    before = attempts[left_out.token].renewed_at
    handed: list[tuple[float, list[Any]]] = []
    monkeypatch.setattr(bench.processes, "renew", lambda at, *, stop: handed.append((at, list(stop))))
    beating.wire.takes, beating.wire.leaves_out = 3.0, {left_out.instance_id}
    assert beating.ask(kept, left_out) == 5.0
    assert attempts[kept.token].renewed_at == at
    assert attempts[left_out.token].renewed_at == before
    # The keeper holds processes to their leases by the same time.
    assert handed == [(at, [left_out.token])]
    # An earlier one whose answer comes later takes nothing back.
    held = [Held(kept.instance_id, kept.token)]
    bench.runner.renew(held, HeartbeatKept(0, [kept.instance_id]), at - 2)
    assert attempts[kept.token].renewed_at == at


async def test_an_error_renews_nothing_stops_nothing_and_is_asked_again_soon(beating: Beating) -> None:
    work = assignment_of(script=FOR_EVER)
    (attempt,) = (await started(beating.bench, work)).values()
    before = attempt.renewed_at
    beating.heartbeat._event_loop = asyncio.get_running_loop()
    beating.wire.silent = True
    assert beating.ask(work) < 5.0
    await asyncio.sleep(0)  # what would be handed over comes with the next turn of the event loop
    assert (attempt.renewed_at, attempt.ending) == (before, None)
    assert beating.heartbeat._backoff.failures == 1
    beating.wire.silent = False
    assert beating.ask(work) == 5.0
    assert beating.heartbeat._backoff.failures == 0


async def test_what_was_said_of_progress_is_said_again_until_it_was_heard(beating: Beating) -> None:
    work = assignment_of(script=f'echo "50 half" > "$HETUFLOW_PROGRESS"; {FOR_EVER}')
    (attempt,) = (await started(beating.bench, work)).values()
    await wait_until_async(attempt.directory.progress.read_bytes)
    beating.wire.silent = True
    beating.ask(work)
    beating.wire.silent = False
    beating.ask(work)
    beating.ask(work)
    said = [[(one.percent, one.message) for one in message.progress] for message in beating.wire.heard]
    assert said == [[(50.0, "half")], [(50.0, "half")], []]


async def test_an_answer_stops_cancels_and_commands(beating: Beating) -> None:
    bench = beating.bench
    kept, left_out, cancelled = (assignment_of(script=FOR_EVER, kill_grace_ms=100) for _ in range(3))
    await started(bench, kept, left_out, cancelled)
    command = Command(uuid4(), CommandKind.DRAIN)
    beating.wire.leaves_out = {left_out.instance_id, cancelled.instance_id}
    beating.wire.cancels = [Cancel(cancelled.instance_id, cancelled.token)]
    beating.wire.commands = [command]
    async with running(beating.heartbeat):
        finish = await bench.desk.result_of(cancelled.instance_id)
        await wait_until_async(lambda: len(bench.runner.attempts()) == 1)
    assert finish.status is Status.CANCELLED
    assert bench.runner.attempts()[0].assignment == kept
    assert set(bench.desk.finishes) == {cancelled.instance_id}
    assert beating.told[:1] == [command]


async def test_a_claim_that_comes_does_not_wait_out_an_idle_period(beating: Beating) -> None:
    """With nothing held half a minute passes between heartbeats; a lease may be shorter."""
    bench, wire = beating.bench, beating.wire
    async with running(beating.heartbeat):
        await wait_until_async(lambda: len(wire.heard) == 1)
        beating.clock.advance(5.0)
        work = assignment_of(script=FOR_EVER)
        bench.runner.accept([work])
        await wait_until_async(lambda: len(wire.heard) == 2)
    assert [len(message.held) for message in wire.heard] == [0, 1]


async def test_readiness_that_has_changed_is_told_at_once(beating: Beating) -> None:
    """The server waits for it; one that does not answer is not told sooner."""
    wire, heartbeat = beating.wire, beating.heartbeat
    (attempt,) = (await started(beating.bench, assignment_of(script=FOR_EVER, slot=0))).values()
    async with running(heartbeat):
        await wait_until_async(lambda: wire.heard)
        attempt.ready = True
        await wait_until_async(lambda: len(wire.heard) == 2)
    assert [[one.ready for one in message.readiness] for message in wire.heard] == [[], [True]]
    attempt.ready = False
    assert heartbeat._has_news()
    wire.silent = True
    beating.ask(attempt.assignment)
    assert not heartbeat._has_news()
