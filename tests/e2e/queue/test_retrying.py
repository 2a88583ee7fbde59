"""Rules and deadlines with a real agent: exit codes, signals and output as processes really give them."""

from __future__ import annotations

from datetime import timedelta

import psutil
import pytest

from hetuflow_core.resources.tasks import TaskDetail
from tests.e2e.conftest import System
from tests.support.processes.processes import gone
from tests.support.waiting import wait_until

AT_ONCE = {"max_attempts": 3, "delay": "10ms", "jitter": False}
STOP = {"retry": False}


def finish(system: System, script: str, **spec: object) -> TaskDetail:
    job = system.apply(run={"script": script}, **spec)
    return system.client.wait(system.client.run(job.id).id, timeout=30)


@pytest.mark.parametrize(
    ("script", "when"),
    [
        ("exit 64", {"exit_code": [2, 64]}),
        ("kill -ABRT $$", {"signal": "ABRT"}),
        ("echo 'Fatal: no such table' >&2; exit 1", {"output": "(?i)^fatal:"}),
        ("echo 'usage: x'; exit 1", {"exit_code": 1, "output": "usage"}),
    ],
)
def test_a_rule_stops_what_it_is_about_and_nothing_else(
    system: System, script: str, when: dict[str, object]
) -> None:
    retry = {**AT_ONCE, "rules": [{"when": when, "then": STOP}]}
    stopped = finish(system, script, retry=retry)
    assert (stopped.status, stopped.attempts, len(stopped.instances)) == ("failed", 1, 1)
    others = finish(system, "echo fine; exit 3", retry=retry)
    assert (others.status, others.attempts, others.exit_code) == ("failed", 3, 3)


def test_the_first_rule_that_holds_sets_the_delay(system: System) -> None:
    rules = [
        {"when": {"exit_code": 75}, "then": {"delay": "700ms", "backoff": "fixed"}},
        {"when": {"exit_code": [75, 76]}, "then": STOP},
    ]
    script = "test $HETUFLOW_ATTEMPT -ge 2 && exit 76; exit 75"
    task = finish(system, script, retry={**AT_ONCE, "rules": rules})
    assert [(one.attempt, one.exit_code) for one in task.instances] == [(1, 75), (2, 76)]
    first, second = task.instances
    assert first.finished_at
    assert second.started_at
    assert second.started_at - first.finished_at >= timedelta(milliseconds=650)


def test_a_rule_sees_the_last_line_of_a_long_log(system: System) -> None:
    retry = {**AT_ONCE, "rules": [{"when": {"output": "^out of credit$"}, "then": STOP}]}
    late = finish(system, "seq 100000; echo out of credit; exit 1", retry=retry)
    assert (late.status, len(late.instances)) == ("failed", 1)
    early = finish(system, "echo out of credit; seq 100000; exit 1", retry=retry)
    assert (early.status, len(early.instances)) == ("failed", 3)


def test_no_retry_starts_after_the_deadline(system: System) -> None:
    retry = {"max_attempts": 9, "delay": "1h", "max_delay": "1h", "jitter": False}
    task = finish(system, "exit 3", deadline="30m", retry=retry)
    assert (task.status, task.reason, task.exit_code) == ("failed", "deadline", 3)
    assert len(task.instances) == 1


def test_a_running_process_is_ended_at_the_deadline(system: System) -> None:
    job = system.apply(
        run={"script": "echo $$; sleep 600"}, deadline="3s", kill_grace="500ms", retry={"max_attempts": 5}
    )
    task = system.client.run(job.id)
    pid = int(
        wait_until(lambda: system.client.logs(task.instances[0].id), timeout=20, what="the pid").decode()
    )
    assert psutil.pid_exists(pid)
    done = system.client.wait(task.id, timeout=30)
    assert (done.status, done.reason, len(done.instances)) == ("failed", "deadline", 1)
    assert (done.instances[0].status, done.instances[0].reason) == ("cancelled", "deadline")
    assert done.finished_at is not None
    assert done.finished_at - task.due_at >= timedelta(seconds=3)
    wait_until(lambda: gone(pid), what="the process to go")
    shown = {one["id"]: one["reason"] for one in system.get(f"/api/v1/tasks?job={job.name}").json()["items"]}
    assert shown == {str(task.id): "deadline"}


def test_what_nobody_takes_fails_at_its_deadline(lone_server: System) -> None:
    job = lone_server.apply(run={"command": ["true"]}, deadline="200ms")
    done = lone_server.client.wait(lone_server.client.run(job.id).id, timeout=30)
    assert (done.status, done.reason, done.attempts) == ("failed", "deadline", 0)
    assert (done.instances[0].status, done.instances[0].reason) == ("cancelled", "deadline")
