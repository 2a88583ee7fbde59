"""What a real agent makes of a job: processes, logs, exit codes, time-outs, retries, cancels."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from hetuflow_core.client import LogEnd, LogPiece
from hetuflow_core.resources.tasks import RunRequest, TaskDetail
from tests.e2e.conftest import System
from tests.support.processes.processes import gone
from tests.support.waiting import wait_until


def finish(system: System, spec: dict[str, object], **run: object) -> TaskDetail:
    job = system.apply(**spec)
    return system.client.wait(system.client.run(job.id, **run).id, timeout=30)  # type: ignore[arg-type]


def output(system: System, task: TaskDetail, stream: str = "stdout") -> str:
    return system.client.logs(task.instances[-1].id, stream).decode()


def test_a_command_runs_with_its_parameters(system: System) -> None:
    spec = {
        "run": {"command": ["echo", "hello {{ params.who }}", "{{ task.id }}", "{{ job.version }}"]},
        "params": {"who": "world"},
    }
    task = finish(system, spec, params={"who": "me"})
    assert (task.status, task.exit_code) == ("succeeded", 0)
    assert output(system, task) == f"hello me {task.id} 1\n"
    assert task.instances[0].agent == "worker"


def test_a_script_gets_its_parameters_through_the_environment(system: System) -> None:
    script = (
        'echo "$WHO|$HETUFLOW_JOB|$HETUFLOW_NAMESPACE|$HETUFLOW_ATTEMPT"; '
        'echo "{{ params.who }}"; echo err >&2'
    )
    task = finish(
        system,
        {"run": {"script": script, "env": {"WHO": "{{ params.who }}"}}, "params": {"who": "a; rm -rf b"}},
    )
    assert task.status == "succeeded"
    assert output(system, task) == f"a; rm -rf b|{task.job}|default|1\n{{{{ params.who }}}}\n"
    assert output(system, task, "stderr") == "err\n"


def test_the_environment_says_which_task_it_is_and_holds_no_secret(system: System) -> None:
    task = finish(system, {"run": {"command": ["env"]}})
    seen = dict(line.partition("=")[::2] for line in output(system, task).splitlines())
    assert seen["HETUFLOW_TASK_ID"] == str(task.id)
    assert seen["HETUFLOW_INSTANCE_ID"] == str(task.instances[0].id)
    assert datetime.fromisoformat(seen["HETUFLOW_SCHEDULED_AT"]).replace(
        microsecond=0
    ) == task.fire_at.replace(microsecond=0)
    assert system.agent_token not in output(system, task)


@pytest.mark.parametrize(
    ("code", "status"), [(0, "succeeded"), (1, "failed"), (77, "skipped"), (255, "failed")]
)
def test_exit_codes_are_honest(system: System, code: int, status: str) -> None:
    task = finish(system, {"run": {"script": f"exit {code}"}, "skip_exit_codes": [77]})
    assert (task.status, task.exit_code) == (status, code)


def test_death_by_a_signal_is_a_failure_that_says_so(system: System) -> None:
    task = finish(system, {"run": {"script": "kill -SEGV $$"}})
    assert (task.status, task.instances[0].signal) == ("failed", 11)


def test_a_command_that_does_not_exist_fails_with_the_reason(system: System) -> None:
    task = finish(system, {"run": {"command": ["/no/such/thing"]}})
    assert (task.status, task.instances[0].reason) == ("failed", "spawn_failed")
    assert "/no/such/thing" in (task.instances[0].message or "")


def test_a_timeout_kills_the_whole_group(system: System) -> None:
    script = "sleep 600 & echo $! $$; setsid sleep 600 & echo $!; wait"
    task = finish(system, {"run": {"script": script}, "timeout": "1s", "kill_grace": "500ms"})
    assert (task.status, task.instances[0].status) == ("failed", "timed_out")
    pids = [int(word) for word in output(system, task).split()]
    assert len(pids) == 3
    wait_until(lambda: all(gone(pid) for pid in pids), what="the whole group to go")


def test_a_cancel_reaches_a_running_process(system: System) -> None:
    job = system.apply(run={"script": "echo $$; sleep 600"}, kill_grace="500ms")
    task = system.client.run(job.id)
    instance = task.instances[0].id
    pid = int(wait_until(lambda: system.client.logs(instance), timeout=20, what="the pid").decode())
    assert psutil.pid_exists(pid)
    system.client.cancel(task.id)
    done = system.client.wait(task.id, timeout=20)
    assert (done.status, done.instances[0].status) == ("cancelled", "cancelled")
    assert gone(pid)
    assert system.client.cancel(task.id).status == "cancelled"


def test_retries_are_new_instances_after_a_delay(system: System) -> None:
    retry = {"max_attempts": 3, "delay": "300ms", "backoff": "fixed", "jitter": False}
    task = finish(system, {"run": {"script": "echo $HETUFLOW_ATTEMPT; exit 3"}, "retry": retry})
    assert (task.status, task.exit_code, task.attempts) == ("failed", 3, 3)
    assert [(i.seq, i.attempt, i.status) for i in task.instances] == [
        (1, 1, "failed"),
        (2, 2, "failed"),
        (3, 3, "failed"),
    ]
    for earlier, later in zip(task.instances, task.instances[1:], strict=False):
        assert earlier.finished_at
        assert later.started_at
        assert later.started_at - earlier.finished_at >= timedelta(milliseconds=250)
    assert [system.client.logs(i.id) for i in task.instances] == [b"1\n", b"2\n", b"3\n"]


def test_a_task_that_recovers_succeeds(system: System) -> None:
    retry = {"max_attempts": 5, "delay": "10ms"}
    task = finish(system, {"run": {"script": "test $HETUFLOW_ATTEMPT -ge 3"}, "retry": retry})
    assert (task.status, task.attempts, len(task.instances)) == ("succeeded", 3, 3)


def test_run_at_starts_no_earlier_and_hardly_later(system: System) -> None:
    run_at = datetime.now(UTC) + timedelta(seconds=1.5)
    task = finish(system, {"run": {"script": "date +%s.%N"}}, run_at=run_at)
    started = datetime.fromtimestamp(float(output(system, task)), UTC)
    assert run_at <= started < run_at + timedelta(seconds=5)


def test_a_log_is_followed_while_it_grows(system: System) -> None:
    job = system.apply(run={"script": "echo one; sleep 0.4; echo two >&2; sleep 0.4; echo three"})
    task = system.client.run(job.id)
    arrived: list[tuple[str, float]] = []
    end = None
    for piece in system.client.follow_logs(task.instances[0].id):
        if isinstance(piece, LogPiece):
            arrived.append((f"{piece.stream}:{piece.text.strip()}", time.monotonic()))
        elif isinstance(piece, LogEnd):
            end = piece
    assert [text for text, _ in arrived] == ["stdout:one", "stderr:two", "stdout:three"]
    assert arrived[-1][1] - arrived[0][1] > 0.5, "lines came as they were written, not all at the end"
    assert end is not None
    assert (end.status, end.exit_code) == ("succeeded", 0)


def test_a_large_binary_log_arrives_byte_for_byte(system: System) -> None:
    task = finish(system, {"run": {"script": "head -c 3000000 /dev/zero; printf '\\377\\000end'"}})
    log = system.client.logs(task.instances[0].id, "stdout")
    assert len(log) == 3_000_005
    assert log.endswith(b"\xff\x00end")


def test_many_at_once_all_end(system: System) -> None:
    job = system.apply(run={"command": ["echo", "{{ params.n }}"]}, params={"n": 0})
    tasks = system.client.run_many(job.id, [RunRequest(params={"n": n}) for n in range(60)])
    ended = [system.client.wait(task.id, timeout=60) for task in tasks]
    assert {task.status for task in ended} == {"succeeded"}
    assert sorted(int(output(system, task)) for task in ended) == list(range(60))


def test_work_goes_to_agents_that_suit_and_waits_otherwise(system: System) -> None:
    task = finish(
        system, {"run": {"command": ["true"]}, "placement": {"labels": {"zone": "test", "os": "linux"}}}
    )
    assert task.status == "succeeded"
    elsewhere = system.apply(run={"command": ["true"]}, placement={"labels": {"zone": "moon"}})
    waiting = system.client.run(elsewhere.id)
    finish(system, {"run": {"command": ["true"]}})
    assert system.client.task(waiting.id).status == "pending"
    assert system.client.cancel(waiting.id).status == "cancelled"


def test_a_followed_log_goes_on_behind_the_last_event(system: System) -> None:
    task = finish(system, {"run": {"script": "echo one; sleep 0.5; echo two; sleep 0.5; echo three"}})
    path = f"/api/v1/task-instances/{task.instances[0].id}/logs/stream"
    ids = re.findall(r"^id: (.+?)\r?$", system.get(path).text, re.MULTILINE)
    assert len(ids) >= 2
    rest = system.get(path, **{"Last-Event-ID": ids[0]}).text
    assert "one" not in rest
    assert "three" in rest
    assert "event: end" in rest
    assert system.get(path, **{"Last-Event-ID": "nonsense"}).status_code == 422
