"""Attempts with real processes: how they end, what they leave, what they print."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec import structs

from hetuflow_agent.attempt import attempt_steps, runner as runners
from hetuflow_agent.attempt.runner import OnStop
from hetuflow_agent.attempt.secrets import TaskSecrets
from hetuflow_agent.gateway import Session
from hetuflow_agent.keeper.proc import stat_of
from hetuflow_agent.logs import holes
from hetuflow_agent.processes.command import Command
from hetuflow_agent.processes.processes import Child
from hetuflow_core.messages import (
    Assignment,
    Cancel,
    DeliveredSecret,
    FetchSecrets,
    Finish,
    HeartbeatKept,
    Held,
    ReportOutcome,
    SecretPlace,
    SecretsFetched,
)
from hetuflow_core.states import InstanceStatus as Status
from tests.integration.agent.conftest import SPARE_FOLDERS, Bench
from tests.support.agent.assignments import TRACEPARENT, assignment_of
from tests.support.waiting import wait_until_async

FOR_EVER = "sleep 600"


async def finish_of(bench: Bench, assignment: Assignment) -> Finish:
    bench.runner.accept([assignment])
    return await bench.desk.result_of(assignment.instance_id)


def living(pid: int) -> bool:
    found = stat_of(pid)
    return found is not None and found.living


async def pid_in(path: Path) -> int:
    return int(await wait_until_async(lambda: path.exists() and path.read_text().strip(), what=str(path)))


@pytest.mark.parametrize(
    ("script", "status", "exit_code", "number"),
    [
        ("exit 0", Status.SUCCEEDED, 0, None),
        ("exit 7", Status.FAILED, 7, None),
        ("exit 255", Status.FAILED, 255, None),
        ("kill -SEGV $$", Status.FAILED, None, signal.SIGSEGV),
        ("kill -KILL $$", Status.FAILED, None, signal.SIGKILL),
    ],
)
async def test_exit_codes_and_signals_are_honest(
    bench: Bench, script: str, status: Status, exit_code: int | None, number: int | None
) -> None:
    finish = await finish_of(bench, assignment_of(script=script))
    assert (finish.status, finish.exit_code, finish.signal, finish.reason) == (
        status,
        exit_code,
        number,
        None,
    )
    assert finish.started_at is not None
    assert finish.finished_at is not None
    assert finish.started_at <= finish.finished_at


async def test_a_script_gets_its_parameters_through_the_environment(bench: Bench) -> None:
    script = 'echo "$WHO:$HETUFLOW_ATTEMPT:$TRACEPARENT:${HETUFLOW_AGENT__TOKEN-unset}"; pwd; ls -A; cat'
    assignment = assignment_of(script=script, env={"WHO": "$(id) `x`"})
    await finish_of(bench, assignment)
    await wait_until_async(lambda: bench.dependencies.shipper.drained(assignment.token))
    printed = bench.book.streams[assignment.instance_id, "stdout"].decode().splitlines()
    assert printed == [
        f"$(id) `x`:2:{TRACEPARENT}:unset",
        str(bench.directory(assignment) / "work"),
    ]


async def test_output_beyond_a_request_and_binary_arrives_whole(bench: Bench) -> None:
    script = (
        "import os, sys\n"
        "for i in range(40): sys.stdout.buffer.write(os.urandom(65_537))\n"
        "print('x', file=sys.stderr)\n"
    )
    assignment = assignment_of(script=script, shell="python3")
    assert (await finish_of(bench, assignment)).status is Status.SUCCEEDED
    await wait_until_async(lambda: bench.dependencies.shipper.drained(assignment.token))
    kept = (bench.directory(assignment) / "stdout").read_bytes()
    assert len(kept) == 40 * 65_537
    assert bench.book.streams[assignment.instance_id, "stdout"] == kept
    assert bench.book.streams[assignment.instance_id, "stderr"] == b"x\n"
    assert max(bench.book.requests) <= 1024 * 1024


async def test_a_log_is_shipped_while_the_process_runs(bench: Bench) -> None:
    assignment = assignment_of(script=f"echo ready; {FOR_EVER}")
    bench.runner.accept([assignment])
    key = (assignment.instance_id, "stdout")
    assert await wait_until_async(lambda: bench.book.streams.get(key)) == b"ready\n"
    assert assignment.instance_id not in bench.desk.finishes


async def test_the_folder_goes_when_the_result_is_taken(bench: Bench) -> None:
    assignment = assignment_of(script="echo some; mkdir -p a/b; chmod 500 a/b a; exit 1")
    await finish_of(bench, assignment)
    await wait_until_async(lambda: bench.dependencies.shipper.drained(assignment.token))
    assert bench.directory(assignment).exists()
    assert await bench.dependencies.shipper.taken([assignment.token]) == []
    assert not bench.directory(assignment).exists()
    assert await bench.dependencies.outbox.finished() == []


async def test_the_folder_of_work_that_said_nothing_serves_the_next_before_the_result_is_taken(
    bench: Bench,
) -> None:
    silent, next_one = assignment_of(["true"]), assignment_of(script="pwd; exit 3")
    assert (await finish_of(bench, silent)).status is Status.SUCCEEDED
    assert [found.finish.token for found in await bench.dependencies.outbox.finished()] == [silent.token]
    before = (bench.directory(silent) / "stdout").stat().st_ino
    assert (await finish_of(bench, next_one)).exit_code == 3
    assert not bench.directory(silent).exists()
    assert (bench.directory(next_one) / "stdout").stat().st_ino == before
    assert await bench.dependencies.shipper.taken([silent.token]) == []
    assert [found.finish.token for found in await bench.dependencies.outbox.finished()] == [next_one.token]


@pytest.mark.parametrize(("script", "kept"), [("echo x > left; exit 1", True), ("exit 0", False)])
async def test_the_folder_of_failed_work_is_kept_if_that_is_wanted(
    bench: Bench, script: str, kept: bool
) -> None:
    bench.kept.keep_seconds = 600.0
    assignment = assignment_of(script=script)
    await finish_of(bench, assignment)
    await wait_until_async(lambda: bench.dependencies.shipper.drained(assignment.token))
    await bench.dependencies.shipper.taken([assignment.token])
    folder = bench.directory(assignment)
    assert (bench.dependencies.data.failed / folder.name / "work/left").exists() == kept
    # Of work that went well it waits, emptied, for the next claim.
    assert folder.exists() is not kept
    assert [each.read_bytes() for each in folder.rglob("*") if each.is_file()] == ([] if kept else [b""] * 5)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["no-such-program-here"], "no-such-program-here cannot be started (No such file or directory)"),
        (["/etc/passwd"], "/etc/passwd cannot be started (Permission denied)"),
        (["echo", "nul\0byte"], "embedded null byte"),
    ],
)
async def test_what_cannot_be_spawned_fails_with_a_sentence(
    bench: Bench, command: list[str], words: str
) -> None:
    finish = await finish_of(bench, assignment_of(command))
    assert (finish.status, finish.reason, finish.exit_code) == (Status.FAILED, "spawn_failed", None)
    assert finish.message is not None
    assert words in finish.message


async def test_a_given_working_directory_is_used(bench: Bench, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    await finish_of(bench, assignment_of(["touch", "been-here"], workdir=str(there)))
    assert (there / "been-here").exists()


async def test_a_missing_working_directory_is_named(bench: Bench, tmp_path: Path) -> None:
    finish = await finish_of(bench, assignment_of(["true"], workdir=str(tmp_path / "gone")))
    assert finish.reason == "spawn_failed"
    assert finish.message is not None
    assert f"The working directory {tmp_path / 'gone'} cannot be entered" in finish.message


async def test_a_timeout_kills_the_whole_tree(bench: Bench, tmp_path: Path) -> None:
    """Also what ignores TERM, left the group with setsid, and lost its parent."""
    script = f"""
trap '' TERM
setsid bash -c "trap '' TERM; echo \\$\\$ > {tmp_path}/grandchild; while :; do sleep 1; done" &
(setsid env -i bash -c "trap '' TERM; echo \\$\\$ > {tmp_path}/bare; while :; do sleep 1; done" &)
(bash -c "trap '' TERM; setsid bash -c 'echo \\$\\$ > {tmp_path}/orphan; exec sleep 600' & exit") &
echo $$ > {tmp_path}/main
while :; do sleep 1; done
"""
    assignment = assignment_of(script=script, timeout_ms=1_500, kill_grace_ms=300)
    finish = await finish_of(bench, assignment)
    assert (finish.status, finish.signal) == (Status.TIMED_OUT, signal.SIGKILL)
    for name in ("main", "grandchild", "orphan"):
        assert not living(await pid_in(tmp_path / name)), name
    bare = await pid_in(tmp_path / "bare")
    if living(bare):  # without environment, group and parent it cannot be told whose it is
        os.kill(bare, signal.SIGKILL)


async def test_a_process_that_obeys_has_its_grace(bench: Bench, tmp_path: Path) -> None:
    script = f"""
trap 'sleep 0.3; echo saved > {tmp_path}/saved; exit 3' TERM
echo up > {tmp_path}/up
while :; do sleep 0.05; done
"""
    assignment = assignment_of(script=script)
    bench.runner.accept([assignment])
    await wait_until_async((tmp_path / "up").exists)
    bench.runner.cancel([Cancel(assignment.instance_id, assignment.token)])
    finish = await bench.desk.result_of(assignment.instance_id)
    assert (finish.status, finish.exit_code) == (Status.CANCELLED, 3)
    assert (tmp_path / "saved").exists()


async def test_what_is_left_of_the_group_ends_with_the_main_process(bench: Bench, tmp_path: Path) -> None:
    script = f"{FOR_EVER} & echo $! > {tmp_path}/left; exit 0"
    finish = await finish_of(bench, assignment_of(script=script))
    assert finish.status is Status.SUCCEEDED
    pid = await pid_in(tmp_path / "left")
    await wait_until_async(lambda: not living(pid))


async def test_cancelled_before_its_start_it_never_runs(bench: Bench, tmp_path: Path) -> None:
    assignment = assignment_of(["touch", str(tmp_path / "ran")], due_in_ms=60_000)
    bench.runner.accept([assignment])
    bench.runner.cancel([Cancel(assignment.instance_id, assignment.token)])
    assert (await bench.desk.result_of(assignment.instance_id)).status is Status.CANCELLED
    assert bench.desk.started == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("outcome", [ReportOutcome.STALE, ReportOutcome.CANCELLED])
async def test_without_the_servers_ok_nothing_is_spawned(
    bench: Bench, tmp_path: Path, outcome: ReportOutcome
) -> None:
    bench.desk.outcome = outcome
    assignment = assignment_of(["touch", str(tmp_path / "ran")])
    bench.runner.accept([assignment])
    await wait_until_async(lambda: not bench.runner.attempts())
    assert bench.desk.started == [assignment.instance_id]
    assert bench.desk.finishes == {}
    assert not (tmp_path / "ran").exists()
    assert not bench.directory(assignment).exists()
    assert len(bench.dependencies.claims) == 0


async def test_a_claim_that_was_forgotten_and_made_again_has_a_folder_of_its_own(bench: Bench) -> None:
    """A crash of PostgreSQL forgets reservations, so what an agent drops may come back to it at once."""
    first = assignment_of(["true"])
    second = structs.replace(first, token=uuid4())
    bench.desk.outcome = ReportOutcome.STALE
    bench.runner.accept([first])
    await wait_until_async(lambda: bench.desk.started == [first.instance_id])
    bench.desk.outcome = ReportOutcome.OK
    bench.runner.accept([second])
    assert (await bench.desk.result_of(second.instance_id)).status is Status.SUCCEEDED
    assert bench.directory(first) != bench.directory(second)


async def test_future_work_starts_at_its_instant_and_never_before(bench: Bench) -> None:
    assignments = [assignment_of(script="exec date +%s%N", due_in_ms=1_300 + 50 * n) for n in range(4)]
    bench.runner.accept(assignments)
    for assignment in assignments:
        finish = await bench.desk.result_of(assignment.instance_id)
        assert finish.started_at is not None
        assert 0 <= finish.started_at - assignment.due_at < 250
        await wait_until_async(lambda token=assignment.token: bench.dependencies.shipper.drained(token))
        printed = int(bench.book.streams[assignment.instance_id, "stdout"]) // 1_000_000
        assert printed >= assignment.due_at


async def test_what_the_server_no_longer_keeps_is_stopped_without_a_result(bench: Bench) -> None:
    kept, dropped, unasked = (assignment_of(script=FOR_EVER) for _ in range(3))
    bench.runner.accept([kept, dropped, unasked])
    await wait_until_async(lambda: all(attempt.runs for attempt in bench.runner.attempts()))
    sent = [Held(each.instance_id, each.token) for each in (kept, dropped)]
    bench.runner.apply_heartbeat(sent, [kept.instance_id], [])
    await wait_until_async(lambda: len(bench.runner.attempts()) == 2)
    assert {each.assignment.token for each in bench.runner.attempts()} == {kept.token, unasked.token}
    assert bench.desk.finishes == {}
    assert not bench.dependencies.claims.holds(dropped.token)


async def test_a_silent_server_costs_the_process_its_life_unless_it_may_go_on(bench: Bench) -> None:
    """KILL comes at 0.85 of the lease whatever the grace is."""
    killed = assignment_of(
        script="trap '' TERM; while :; do sleep 0.1; done", lease_ms=2_000, kill_grace_ms=60_000
    )
    spared = assignment_of(script=FOR_EVER, lease_ms=2_000, on_lost="continue")
    bench.runner.accept([killed, spared])
    finish = await bench.desk.result_of(killed.instance_id)
    assert (finish.status, finish.reason, finish.signal) == (Status.LOST, "lease_lost", signal.SIGKILL)
    assert finish.started_at is not None
    assert finish.finished_at is not None
    assert finish.finished_at - finish.started_at < 2_000 + 500
    await wait_until_async(lambda: len(bench.runner.attempts()) == 1)
    assert bench.runner.attempts()[0].assignment == spared
    assert bench.runner.attempts()[0].runs


async def test_a_renewed_lease_is_kept_and_what_the_answer_leaves_out_is_not(bench: Bench) -> None:
    kept, left_out = (assignment_of(script=FOR_EVER, lease_ms=1_000, kill_grace_ms=100) for _ in range(2))
    bench.runner.accept([kept, left_out])
    await wait_until_async(lambda: all(attempt.runs for attempt in bench.runner.attempts()))
    now = bench.dependencies.clock.boottime()
    held = [Held(each.instance_id, each.token) for each in (kept, left_out)]
    # From a thread, as the heartbeat does; the event loop is not asked.
    await asyncio.to_thread(bench.runner.renew, held, HeartbeatKept(0, [kept.instance_id]), now + 200)
    await wait_until_async(lambda: len(bench.runner.attempts()) == 1)
    await wait_until_async(lambda: bench.dependencies.clock.boottime() > now + 1)
    assert bench.runner.attempts()[0].assignment == kept
    assert bench.runner.attempts()[0].runs
    assert bench.desk.finishes == {}


async def test_what_fills_the_disk_with_output_is_ended(bench: Bench) -> None:
    bench.runner._dependencies = replace(bench.dependencies, output_limit=100_000)
    finish = await finish_of(bench, assignment_of(script="yes | head -c 200000; sleep 600"))
    assert (finish.status, finish.reason) == (Status.FAILED, "output_limit")


async def test_the_log_of_a_daemon_rolls(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file system gives nothing back of it, nothing but a limit could end it: so it has none."""
    handed: list[tuple[bool, int | None]] = []
    spawn = bench.processes.spawn

    def note(command: Command, *, recallable: bool) -> Child:
        handed.append((command.rolling, command.output_limit))
        return spawn(command, recallable=recallable)

    monkeypatch.setattr(bench.processes, "spawn", note)
    bench.runner._dependencies = replace(bench.dependencies, output_limit=100_000)
    await finish_of(bench, assignment_of(["true"], slot=0))
    await finish_of(bench, assignment_of(["true"]))
    monkeypatch.setattr(attempt_steps, "gives_room_back", lambda _: False)
    await finish_of(bench, assignment_of(["true"], slot=0))
    await finish_of(bench, assignment_of(["true"]))
    assert handed == [(True, 100_000), (False, 100_000), (True, None), (False, 100_000)]


async def test_a_daemon_goes_on_where_no_holes_can_be_punched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes three times what it may have on the disk, and is looked at after that."""
    monkeypatch.setattr(holes, "_fallocate", lambda *_: False)
    limit, pieces = 256 * 1024, 4
    bench.runner._dependencies = replace(bench.dependencies, output_limit=limit)
    bench.dependencies.shipper.output_limit = limit
    script = """
    for i in $(seq 4); do
        head -c 196608 /dev/zero | tr '\\0' x
        until [ -e go$i ]; do sleep 0.02; done
    done
    sleep 1.2"""
    daemon = assignment_of(script=script, slot=0)
    bench.runner.accept([daemon])
    for piece in range(1, pieces + 1):
        await wait_until_async(
            lambda so_far=piece: (
                len(bench.book.streams.get((daemon.instance_id, "stdout"), b"")) == so_far * 196_608
            ),
            timeout=30,
            what="what it wrote",
        )
        (bench.directory(daemon) / "work" / f"go{piece}").touch()
    finish = await bench.desk.result_of(daemon.instance_id)
    assert (finish.status, finish.reason, finish.exit_code) == (Status.SUCCEEDED, None, 0)
    assert bench.book.streams[daemon.instance_id, "stdout"] == b"x" * pieces * 196_608


async def test_stopping_gives_back_what_waits_and_ends_what_runs(bench: Bench) -> None:
    running = assignment_of(script="trap '' TERM; while :; do sleep 0.1; done", kill_grace_ms=60_000)
    waiting = assignment_of(["true"], due_in_ms=60_000)
    bench.runner.accept([running, waiting])
    await wait_until_async(lambda: any(attempt.runs for attempt in bench.runner.attempts()))
    before = time.monotonic()
    await bench.runner.stop()
    assert time.monotonic() - before < 10
    finish = bench.desk.finishes[running.instance_id]
    assert (finish.status, finish.reason) == (Status.LOST, "agent_shutdown")
    assert bench.desk.released == [waiting.instance_id]
    assert bench.runner.free_slots() == 0
    assert [found.finish for found in await bench.dependencies.outbox.finished()] == [finish]


async def test_what_is_taken_ahead_runs_in_its_turn_and_no_more_at_once_than_slots(
    bench: Bench, tmp_path: Path
) -> None:
    bench.runner.resize(2)
    script = f"cd {tmp_path}; ls now | wc -l >>seen; touch now/$$; sleep 0.05; rm now/$$"
    (tmp_path / "now").mkdir()
    tasks = [assignment_of(script=script) for _ in range(8)]
    bench.runner.accept(tasks)
    for task in tasks:
        assert (await bench.desk.result_of(task.instance_id)).status is Status.SUCCEEDED
    assert max(map(int, (tmp_path / "seen").read_text().split())) <= 1
    assert bench.desk.released == []


async def test_what_was_taken_ahead_and_has_no_turn_goes_back_unspawned(bench: Bench, tmp_path: Path) -> None:
    bench.runner.resize(1)
    long = assignment_of(script=FOR_EVER, kill_grace_ms=100)
    ahead, unwanted = (assignment_of(script=f"touch {tmp_path}/ran") for _ in range(2))
    bench.runner.accept([long])
    await wait_until_async(lambda: any(attempt.runs for attempt in bench.runner.attempts()))
    bench.runner.accept([ahead, unwanted])
    bench.runner.cancel([Cancel(unwanted.instance_id, unwanted.token)])
    finish = await bench.desk.result_of(unwanted.instance_id)
    assert (finish.status, finish.started_at) == (Status.CANCELLED, None)
    await wait_until_async(lambda: bench.desk.released == [ahead.instance_id])
    await wait_until_async(lambda: len(bench.runner.attempts()) == 1)
    assert not bench.dependencies.claims.holds(ahead.token)
    assert not (tmp_path / "ran").exists()
    assert await bench.dependencies.outbox.journal() != []
    bench.runner.cancel([Cancel(long.instance_id, long.token)])
    await bench.desk.result_of(long.instance_id)


@pytest.mark.parametrize("on_stop", list(OnStop))
async def test_a_start_that_was_committed_is_given_back_by_a_stopping_agent(
    bench: Bench, on_stop: OnStop
) -> None:
    """Nothing has begun: it is not lost, whoever has a slot may have it at once."""
    bench.runner.resize(1)
    bench.runner._on_stop = on_stop
    long, ahead = assignment_of(script=FOR_EVER, kill_grace_ms=100), assignment_of(["true"])
    bench.runner.accept([long])
    await wait_until_async(lambda: any(attempt.runs for attempt in bench.runner.attempts()))
    bench.runner.accept([ahead])
    await wait_until_async(lambda: ahead.instance_id in bench.desk.started)
    stopping = asyncio.create_task(bench.runner.stop())
    await wait_until_async(lambda: bench.desk.released)
    bench.runner.cancel([Cancel(long.instance_id, long.token)])
    await stopping
    assert bench.desk.released == [ahead.instance_id]
    assert ahead.instance_id not in bench.desk.finishes


async def test_the_same_assignment_twice_is_one(bench: Bench, tmp_path: Path) -> None:
    assignment = assignment_of(script=f"echo x >> {tmp_path}/runs")
    assert bench.runner.accept([assignment, assignment]) == 1
    await bench.desk.result_of(assignment.instance_id)
    assert bench.runner.accept([assignment]) == 0
    assert (tmp_path / "runs").read_text() == "x\n"


async def test_hundreds_of_tasks_leave_no_descriptor_and_no_thread(bench: Bench) -> None:
    async def batch() -> None:
        assignments = [assignment_of(["true"]) for _ in range(50)]
        bench.runner.accept(assignments)
        tokens = [(await bench.desk.result_of(each.instance_id)).token for each in assignments]
        assert await bench.dependencies.shipper.taken(tokens) == []

    def open_descriptors() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    await batch()
    threads, descriptors = threading.active_count(), open_descriptors()
    for _ in range(5):
        await batch()
    assert open_descriptors() <= descriptors + 1
    # The event loop's pool of threads grows up to its bound.
    assert threading.active_count() <= max(threads, 3 + min(32, (os.cpu_count() or 1) + 4) + 3)
    left = [folder.name for folder in bench.dependencies.data.instances.iterdir()]
    assert len(left) == SPARE_FOLDERS, "no more than wait for the next claims"


async def test_no_more_work_is_asked_for_or_begun_than_may_be(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drained, on a full disk, without a keeper, and once it stops."""
    runner, data, processes = bench.runner, bench.dependencies.data, bench.processes
    assert (runner.free_slots(), runner.blocked()) == (50, False)
    runner.take_work(False)
    assert (runner.free_slots(), runner.blocked()) == (0, False)
    runner.take_work(True)
    with monkeypatch.context() as patched:
        patched.setattr(data, "has_room", lambda: False)
        assert (runner.free_slots(), runner.blocked()) == (0, True)
    with monkeypatch.context() as patched:
        patched.setattr(type(processes), "connected", False)
        assert (runner.free_slots(), runner.blocked()) == (0, True)
    assert runner.free_slots() == 50
    await runner.stop()
    assert (runner.free_slots(), runner.accept([assignment_of(["true"])])) == (0, 0)


def test_only_what_was_asked_about_and_is_neither_kept_nor_cancelled_is_no_longer_ours() -> None:
    kept, cancelled, gone = (Held(uuid4(), uuid4()) for _ in range(3))
    cancels = [Cancel(cancelled.instance_id, cancelled.token)]
    assert runners._lost_claims([kept, cancelled, gone], [kept.instance_id], cancels) == [gone]


async def test_another_in_our_place_costs_what_we_run_its_life(bench: Bench) -> None:
    """An agent that leaves its work to the keeper may not, once another process is that agent."""
    bench.runner._on_stop = OnStop.LEAVE
    work = assignment_of(script=f"exec {FOR_EVER}", kill_grace_ms=60_000)
    bench.runner.accept([work])
    await wait_until_async(lambda: any(attempt.runs for attempt in bench.runner.attempts()))
    bench.runner.end_on_stop()
    await bench.runner.stop()
    finish = bench.desk.finishes[work.instance_id]
    assert (finish.status, finish.reason) == (Status.LOST, "agent_shutdown")


class Confidant:
    async def fetch_secrets(self, request: FetchSecrets) -> SecretsFetched:
        return SecretsFetched(0, [DeliveredSecret("token", 1, "hunter22")])


async def test_no_secret_is_told_beside_the_log(bench: Bench) -> None:
    """Not in the sentence that says why it could not be started, and not in an output."""
    room = TaskSecrets(Confidant(), Session(uuid4()), bench.dependencies.shipper, random.Random(1))
    bench.runner._dependencies = replace(bench.dependencies, secrets=room)
    places = [SecretPlace("token", env="TOKEN")]
    missing, telling = (
        structs.replace(one, run=structs.replace(one.run, secrets=places))
        for one in (
            assignment_of(["/none/hunter22"]),
            assignment_of(script='printf \'{"a": ["%s"], "%s": 1}\' $TOKEN $TOKEN > "$HETUFLOW_OUTPUT"'),
        )
    )
    finish = await finish_of(bench, missing)
    assert finish.reason == "spawn_failed"
    assert str(finish.message).startswith("/none/******** cannot be started")
    finish = await finish_of(bench, telling)
    assert finish.output == {"a": ["********"], "********": 1}
    # Of its progress a heartbeat may be telling just now, though it has said nothing.
    assert bench.dependencies.shipper.masked(telling.token, "hunter22") == "********"


async def test_daemons_are_not_waited_for(bench: Bench) -> None:
    """An agent that stops when its work has ended would never stop: it ends what never ends."""
    daemon, task = assignment_of(script=f"exec {FOR_EVER}", slot=0), assignment_of(script=f"exec {FOR_EVER}")
    bench.runner.accept([daemon, task])
    await wait_until_async(lambda: sum(one.runs for one in bench.runner.attempts()) == 2, timeout=30)
    bench.runner.end_daemons()
    finish = await bench.desk.result_of(daemon.instance_id)
    assert (finish.status, finish.reason) == (Status.LOST, "agent_shutdown")
    assert task.instance_id not in bench.desk.finishes
