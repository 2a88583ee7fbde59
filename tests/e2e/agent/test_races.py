"""What a real agent does when two things happen at once, and when its clock is wrong."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import psycopg
import pytest

from hetuflow_agent.keeper.limits import slice_of
from hetuflow_core.errors import Conflict
from hetuflow_core.runtime.exit_codes import ExitCode
from tests.e2e.conftest import System
from tests.support.agent.breakable_connection import Wire
from tests.support.agent.hosts import Host
from tests.support.agent.keepers import end_keeper
from tests.support.processes.processes import AGENT
from tests.support.waiting import wait_until

HOUR = 3600


@pytest.fixture
def host(lone_server: System, tmp_path: Path) -> Iterator[Host]:
    data = tmp_path / "data"
    with ExitStack() as stack:
        stack.callback(end_keeper, data)
        yield Host(lone_server, data, stack)


def test_whoever_finishes_too_late_is_told_and_what_it_said_is_kept(host: Host, tmp_path: Path) -> None:
    gate, runs = tmp_path / "gate", tmp_path / "runs"
    with Wire(host.server.url) as wire:
        host.agent(server_url=wire.url)
        script = f"touch {runs}; while [ ! -e {gate} ]; do sleep 0.05; done; exit 5"
        task = host.run(script, lease="4s", on_lost="continue")
        # Not its status: that is known before the agent is answered that it may start.
        wait_until(runs.exists, timeout=30, what="its start")
        wire.cut()
        lost = wait_until(
            lambda: (found := host.server.client.task(task.id)).instances[0].status == "lost" and found,
            timeout=60,
            what="the loss",
        )
        gate.touch()
        wait_until(lambda: results_on_disk(host.data) == 1, timeout=60, what="the result")
        wire.mend()
        kept = wait_until(
            lambda: late_reports(host.server, task.instances[0].id), timeout=60, what="the late report"
        )
        # Answered, it is the agent's no more.
        wait_until(lambda: results_on_disk(host.data) == 0, timeout=60, what="the record to go")
    assert kept == [("failed", 5)]
    assert host.server.client.task(task.id).instances[0] == lost.instances[0]


def results_on_disk(data: Path) -> int:
    """Results that the next life of the agent would report."""
    kept: set[str] = set()
    for line in (data / "records.jsonl").read_text().split("\n")[:-1]:
        record = json.loads(line)
        if record.get("type") == "result":
            kept.add(record["finish"]["token"])
        elif record.get("type") == "removed":
            kept -= set(record["tokens"])
    return len(kept)


def late_reports(system: System, instance: object) -> list[tuple[str, int]]:
    with psycopg.connect(system.database_url) as connection:
        return connection.execute(
            "SELECT report->>'status', (report->>'exit_code')::int FROM sched_late_report "
            "WHERE instance_id = %s",
            [instance],
        ).fetchall()


def test_of_two_agents_with_one_name_the_newer_stays_and_nothing_runs_twice(
    host: Host, tmp_path: Path
) -> None:
    """As when a host's disk is copied: what the older one ran is ended before the newer one runs it."""
    pid, overlap, gate = (tmp_path / name for name in ("pid", "overlap", "gate"))
    twin = host.neighbour()
    twin.name = host.name
    older = host.agent()
    task = host.run(
        f"if [ -e {pid} ] && kill -0 $(cat {pid}); then touch {overlap}; fi; echo $$ > {pid}; "
        f"while [ ! -e {gate} ]; do sleep 0.05; done",
        lease="4s",
        retry={"max_attempts": 2, "delay": "0s"},
    )
    wait_until(pid.exists, timeout=30, what="the first attempt")
    first = psutil.Process(int(wait_until(pid.read_text, timeout=30, what="its pid")))
    newer = twin.agent()
    assert older.wait() == ExitCode.CONFLICT
    wait_until(
        lambda: pid.read_text().strip() not in ("", str(first.pid)), timeout=60, what="the second attempt"
    )
    assert not first.is_running()
    gate.touch()
    ended = host.server.client.wait(task.id, timeout=60)
    assert [one.status for one in ended.instances] == ["lost", "succeeded"]
    assert not overlap.exists()
    assert not newer.ended


def test_a_cancel_that_races_start_and_finish_has_one_outcome(host: Host, tmp_path: Path) -> None:
    """Whatever came first: what never ran left nothing, what succeeded has run, and no slot is lost."""
    host.agent()
    client = host.server.client
    job = host.server.apply(
        run={"script": f"touch {tmp_path}/ran-$HETUFLOW_TASK_ID; sleep 0.02"},
        placement={"labels": {"host": host.label}},
        kill_grace="1s",
    )
    tasks = []
    for n in range(24):
        tasks.append(client.run(job.id).id)
        # Between before it was claimed and after it has ended.
        time.sleep(0.004 * (n % 12))
        with suppress(Conflict):  # it was over
            client.cancel(tasks[-1])
    ends = [client.wait(task, timeout=60) for task in tasks]
    for end in ends:
        ran = (tmp_path / f"ran-{end.id}").exists()
        assert end.status in ("succeeded", "cancelled")
        assert len(end.instances) == 1
        assert ran or end.status == "cancelled"
        assert ran or end.instances[0].exit_code is None
        assert not ran or end.instances[0].started_at is not None
    assert {end.status for end in ends} >= {"cancelled"}
    last = [client.run(job.id).id for _ in range(5)]
    assert {client.wait(task, timeout=60).status for task in last} == {"succeeded"}


def test_a_host_whose_clock_is_an_hour_ahead_starts_work_at_its_time(host: Host) -> None:
    program = [
        sys.executable,
        str(Path(__file__).parents[2] / "support" / "agent" / "agent_with_wrong_clock.py"),
    ]
    host.agent(program, {"HOST_CLOCK_OFF": str(HOUR)})
    client = host.server.client
    job = host.server.apply(
        run={"command": ["date", "+%s.%N"]}, placement={"labels": {"host": host.label}}, timeout="10m"
    )
    due = datetime.now(UTC) + timedelta(seconds=3)
    later = client.run(job.id, run_at=due)
    at_once = client.wait(client.run(job.id).id, timeout=30)
    assert at_once.status == "succeeded"
    done = client.wait(later.id, timeout=60)
    (instance,) = done.instances
    ran = float(host.printed(instance.id))
    assert due.timestamp() <= ran < due.timestamp() + 20
    assert instance.started_at is not None
    assert instance.finished_at is not None
    # Told in the server's time, by the agent.
    assert abs(instance.started_at.timestamp() - ran) < 20
    assert instance.finished_at >= instance.started_at


def test_as_first_process_the_keeper_brings_its_agent_back(host: Host, tmp_path: Path) -> None:
    """As in a container: one process to stop, orphans waited for, a killed agent started again."""
    gate = tmp_path / "gate"
    first = host.agent([*AGENT, "--init"])
    task = host.run(
        f"echo begun; (true & exec sleep 0.1) & while [ ! -e {gate} ]; do sleep 0.05; done; exit 6"
    )
    host.await_output(task.instances[0].id, "begun")
    (agent,) = (one for one in psutil.Process(first.pid).children() if "hetuflow_agent" in one.cmdline())
    agent.kill()
    other = wait_until(
        lambda: next((pid for pid in [lock_holder(host.data)] if pid not in (0, agent.pid)), None),
        timeout=60,
        what="another agent",
    )
    assert psutil.Process(other).ppid() == first.pid
    assert slice_of(other) == slice_of(0), "it is no keeper and has its turns as usual"
    gate.touch()
    done = host.server.client.wait(task.id, timeout=60)
    assert [(one.status, one.exit_code) for one in done.instances] == [("failed", 6)]
    zombies = [one for one in psutil.Process(first.pid).children() if one.status() == psutil.STATUS_ZOMBIE]
    assert zombies == []
    left = host.run("echo begun; exec sleep 600")
    host.await_output(left.instances[0].id, "begun")
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    assert not psutil.pid_exists(other)


def lock_holder(data: Path) -> int:
    return int((data / "lock").read_text().strip() or 0)
