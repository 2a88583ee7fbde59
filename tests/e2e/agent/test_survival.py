"""Agents that are killed, replaced and cut off: the work goes on, or ends before it could run twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.conftest import System, serving
from tests.support.agent import agent_of_next_version
from tests.support.agent.breakable_connection import Wire
from tests.support.agent.hosts import Host
from tests.support.agent.keepers import end_keeper, keeper_of
from tests.support.postgres.databases import DatabaseServer
from tests.support.processes.processes import Running, gone
from tests.support.waiting import wait_until

LEASE = 4.0
# What a loaded machine may add to any of these times.
SLOW = 15.0
LOST_ONLY = {"max_attempts": 1, "on": ["lost"], "delay": "0s", "backoff": "fixed", "jitter": False}


@pytest.fixture(scope="module")
def server(database_server: DatabaseServer) -> Iterator[System]:
    with serving(database_server) as served:
        yield served


@pytest.fixture
def host(server: System, tmp_path: Path) -> Iterator[Host]:
    data = tmp_path / "data"
    with ExitStack() as stack:
        stack.callback(end_keeper, data)
        yield Host(server, data, stack)


def kill(agent: Running) -> None:
    os.kill(agent.pid, signal.SIGKILL)
    agent.wait()


def test_killed_and_started_again_it_goes_on_with_the_same_attempt(host: Host, tmp_path: Path) -> None:
    """The real exit code arrives, and the log has neither gap nor repetition."""
    gate = tmp_path / "gate"
    script = f"i=0; while [ ! -e {gate} ]; do echo $i; i=$((i+1)); sleep 0.02; done; echo end $i; exit 7"
    first = host.agent()
    task = host.run(script)
    instance = task.instances[0].id
    host.await_output(instance, "\n5\n")
    kill(first)
    second = host.agent()
    second.await_log("resumed claims of an earlier agent process")
    gate.touch()
    done = host.server.client.wait(task.id, timeout=30)
    assert (done.status, done.exit_code, done.attempts) == ("failed", 7, 1)
    assert [(i.id, i.status, i.exit_code) for i in done.instances] == [(instance, "failed", 7)]
    lines = host.printed(instance).split()
    count = int(lines[-1])
    assert lines == [*map(str, range(count)), "end", str(count)]


def test_an_agent_is_upgraded_under_running_tasks(host: Host, tmp_path: Path) -> None:
    """Of what runs nothing is lost; the former version's keeper goes when it has nothing left to keep."""
    gate = tmp_path / "gate"
    former = host.agent()
    task = host.run(f"echo before; while [ ! -e {gate} ]; do sleep 0.05; done; echo after; exit 9")
    host.await_output(task.instances[0].id, "before")
    keeper = keeper_of(host.data)
    assert keeper is not None
    former.signal(signal.SIGTERM)
    assert former.wait() == 0
    later = host.agent(program=[sys.executable, agent_of_next_version.__file__])
    assert host.server.client.agent(host.name).version == agent_of_next_version.VERSION
    assert later.await_log("connected to the keeper")["keeper"] == keeper.pid
    gate.touch()
    done = host.server.client.wait(task.id, timeout=60)
    assert (done.exit_code, len(done.instances)) == (9, 1)
    assert host.printed(done.instances[0].id) == "before\nafter\n"
    wait_until(lambda: gone(keeper.pid), timeout=60, what="the former keeper to go")
    assert host.server.client.wait(host.run("exit 0").id, timeout=60).status == "succeeded"
    assert not later.ended


def test_what_ended_while_no_agent_was_there_is_reported_by_the_next(host: Host, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = host.agent()
    task = host.run(f"echo begun; while [ ! -e {gate} ]; do sleep 0.02; done; echo done; exit 3")
    instance = task.instances[0].id
    host.await_output(instance, "begun")
    kill(first)
    gate.touch()
    wait_until(lambda: keeper_of(host.data) is None, what="the keeper to go with its last task")
    assert host.server.client.task(task.id).status == "running"
    host.agent()
    done = host.server.client.wait(task.id, timeout=30)
    assert [(i.status, i.exit_code) for i in done.instances] == [("failed", 3)]
    assert host.printed(instance) == "begun\ndone\n"
    finished = done.instances[0].finished_at
    assert finished is not None


def test_an_agent_that_is_stopped_leaves_its_work_running(host: Host, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = host.agent()
    task = host.run(f"echo begun; while [ ! -e {gate} ]; do sleep 0.02; done; exit 0")
    host.await_output(task.instances[0].id, "begun")
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    assert keeper_of(host.data) is not None
    host.agent()
    gate.touch()
    done = host.server.client.wait(task.id, timeout=30)
    assert (done.status, len(done.instances)) == ("succeeded", 1)


def test_an_agent_that_drains_waits_for_its_work_and_takes_no_more(host: Host, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    agent = host.agent(on_stop="drain", stop_timeout="1s")
    task = host.run(f"echo begun; while [ ! -e {gate} ]; do sleep 0.02; done; exit 0")
    host.await_output(task.instances[0].id, "begun")
    agent.signal(signal.SIGTERM)
    agent.await_log("waiting for tasks to end")
    later = host.run("true")
    gate.touch()
    assert agent.wait() == 0
    assert host.server.client.task(task.id).status == "succeeded"
    assert host.server.client.task(later.id).status == "pending"
    wait_until(lambda: keeper_of(host.data) is None, what="the idle keeper to go")


def test_an_agent_that_is_told_to_end_its_work_reports_it_lost(host: Host) -> None:
    agent = host.agent(on_stop="end")
    task = host.run("echo begun; exec sleep 600", retry={"max_attempts": 1, "on": ["failed"]})
    host.await_output(task.instances[0].id, "begun")
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    done = host.server.client.wait(task.id, timeout=30)
    assert [(i.status, i.reason) for i in done.instances] == [("lost", "agent_shutdown")]
    assert keeper_of(host.data) is None


def stamps(path: Path) -> list[tuple[str, float]]:
    """What the tasks wrote about themselves: (who, when), by the clock that all of them share."""
    lines = path.read_text().split("\n") if path.exists() else []
    return [(words[0], float(words[1])) for line in lines if len(words := line.split()) == 2]


def stamping(path: Path) -> str:
    """A script that says twenty times a second that it lives, and ignores TERM."""
    return (
        f"trap '' TERM; while :; do echo \"$HETUFLOW_INSTANCE_ID $(date +%s.%N)\" >> {path}; sleep 0.05; done"
    )


def lives(path: Path) -> dict[str, tuple[float, float]]:
    """First and last sign of life of each instance."""
    found: dict[str, tuple[float, float]] = {}
    for who, when in stamps(path):
        first, last = found.get(who, (when, when))
        found[who] = (min(first, when), max(last, when))
    return found


def test_an_agent_that_never_comes_back_is_noticed_and_its_work_runs_elsewhere(
    host: Host, tmp_path: Path
) -> None:
    """Lost within the lease and five seconds, and never two of them at once: the keeper ends the first."""
    alive = tmp_path / "alive"
    first = host.agent()
    task = host.run(stamping(alive), lease="4s", on_lost="kill", retry=LOST_ONLY)
    wait_until(lambda: lives(alive), timeout=30, what="a sign of life")
    kill(first)
    killed = time.time()
    neighbour = host.neighbour()
    lost = wait_until(
        lambda: (detail := host.server.client.task(task.id)).instances[0].status == "lost" and detail,
        timeout=30,
        what="the loss",
    )
    assert (lost.instances[0].reason, lost.attempts) == ("lease_expired", 0)
    finished = lost.instances[0].finished_at
    assert finished is not None
    assert finished.timestamp() - killed < LEASE + 5 + SLOW
    neighbour.agent()
    wait_until(lambda: len(lives(alive)) == 2, timeout=30, what="the second one")
    before, after = (life for _, life in sorted(lives(alive).items(), key=lambda item: item[1]))
    assert before[1] < after[0], "they ran at the same time"
    host.server.client.cancel(task.id)
    assert host.server.client.wait(task.id, timeout=30).status == "cancelled"


@pytest.mark.parametrize("on_lost", ["kill", "continue"])
def test_cut_off_for_longer_than_the_lease(host: Host, tmp_path: Path, on_lost: str) -> None:
    """With `kill` nothing runs twice; with `continue` it goes on, and what it reports then comes too late."""
    alive = tmp_path / "alive"
    neighbour = host.neighbour()
    with Wire(host.server.url) as wire:
        host.agent(server_url=wire.url)
        task = host.run(stamping(alive), lease="4s", on_lost=on_lost, retry=LOST_ONLY)
        wait_until(lambda: lives(alive), timeout=30, what="a sign of life")
        wire.cut()
        neighbour.agent()
        wait_until(lambda: len(lives(alive)) == 2, timeout=40, what="the second one")
        before, after = (life for _, life in sorted(lives(alive).items(), key=lambda item: item[1]))
        if on_lost == "kill":
            assert before[1] < after[0], "they ran at the same time"
        else:
            first = min(lives(alive).items(), key=lambda item: item[1])[0]
            wait_until(lambda: lives(alive)[first][1] > after[0], what="the first one to go on")
        wire.mend()
        if on_lost == "continue":
            # Heard of again, it is not wanted any more, and ends.
            wait_until(lambda: settled(alive, first), timeout=30, what="the first one to be stopped")
    second = host.server.client.task(task.id).instances[1]
    assert second.status == "running"
    host.server.client.cancel(task.id)
    done = host.server.client.wait(task.id, timeout=30)
    assert [i.status for i in done.instances] == ["lost", "cancelled"]


def settled(path: Path, who: str) -> bool:
    """Whether this one has been silent for a second while others wrote."""
    found = lives(path)
    return max(last for _, last in found.values()) - found[who][1] > 1.0


def test_a_task_that_takes_its_agent_along_three_times_is_put_aside(host: Host) -> None:
    """Poison: each time it runs the keeper dies, and with it everything the keeper had."""
    host.agent()
    task = host.run('kill -9 "$PPID"; exec sleep 600', retry=LOST_ONLY)
    done = host.server.client.wait(task.id, timeout=60)
    assert (done.status, done.reason, done.attempts) == ("failed", "quarantined", 0)
    assert [(i.status, i.reason) for i in done.instances] == [("lost", "keeper_lost")] * 3


def test_a_cancel_while_no_agent_is_there_is_carried_out_by_the_next(host: Host) -> None:
    first = host.agent()
    task = host.run("echo begun; exec sleep 600")
    host.await_output(task.instances[0].id, "begun")
    kill(first)
    host.server.client.cancel(task.id)
    host.agent()
    done = host.server.client.wait(task.id, timeout=30)
    assert [i.status for i in done.instances] == ["cancelled"]


def test_a_result_whose_answer_was_lost_counts_once(host: Host, tmp_path: Path) -> None:
    """The finish arrives, its answer does not: the agent says it again and is answered the same."""
    gate = tmp_path / "gate"
    with Wire(host.server.url) as wire:
        agent = host.agent(server_url=wire.url)
        task = host.run(f"echo begun; while [ ! -e {gate} ]; do sleep 0.02; done; exit 4")
        host.await_output(task.instances[0].id, "begun")
        wire.swallow_answers()
        gate.touch()
        done = host.server.client.wait(task.id, timeout=30)
        assert (done.status, done.exit_code) == ("failed", 4)
        wire.mend()
        again = host.run("exit 0")
        assert host.server.client.wait(again.id, timeout=60).status == "succeeded"
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 0
    assert [i.status for i in host.server.client.task(task.id).instances] == ["failed"]
    wait_until(lambda: not list((host.data / "instances").iterdir()), what="its folder to go")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for little, which only root can make."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place], check=False)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_stops_claiming_and_not_reporting(host: Host, small_disk: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    host.data = small_disk / "data"
    agent = host.agent()
    running = host.run(f"echo begun; while [ ! -e {gate} ]; do sleep 0.02; done; exit 6")
    host.await_output(running.instances[0].id, "begun")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(48 * 1024 * 1024))
    agent.await_log("The disk is nearly full and no more work is taken: free some space.")
    later = host.run("exit 0")
    gate.touch()
    done = host.server.client.wait(running.id, timeout=30)
    assert (done.status, done.exit_code) == ("failed", 6)
    assert host.server.client.task(later.id).status == "pending"
    ballast.unlink()
    assert host.server.client.wait(later.id, timeout=60).status == "succeeded"
    end_keeper(host.data)
