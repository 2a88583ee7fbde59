"""The command line against a real system, as a person or a script would use it."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from tests.e2e.conftest import System
from tests.support.processes.processes import HETUFLOW, Running, run
from tests.support.waiting import wait_until


class Shell:
    def __init__(self, system: System, folder: Path) -> None:
        self.system = system
        self.folder = folder

    def __call__(self, *arguments: str, code: int = 0) -> str:
        result = run([*HETUFLOW, *arguments], env=self.system.environment(), cwd=self.folder)
        assert result.returncode == code, result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        self.stderr = result.stderr
        return result.stdout

    def job(self, body: str) -> str:
        name = f"cli-{uuid4().hex[:10]}"
        (self.folder / f"{name}.yaml").write_text(f"kind: job\nname: {name}\n{body}\n")
        assert "created" in self("apply", "-f", f"{name}.yaml")
        return name


@pytest.fixture
def hetuflow(system: System, tmp_path: Path) -> Shell:
    return Shell(system, tmp_path)


def test_apply_then_run_with_logs_and_the_tasks_own_exit_code(hetuflow: Shell) -> None:
    good = hetuflow.job(
        "run: {script: 'echo hello $WHO; echo note >&2', env: {WHO: '{{ params.who }}'}}\nparams: {who: x}"
    )
    assert hetuflow("job", "run", good, "-p", "who=me", "--logs") == "hello me\n"
    assert "note" in hetuflow.stderr
    bad = hetuflow.job("run: {script: 'exit 42'}")
    hetuflow("job", "run", bad, "--wait", code=42)
    slow = hetuflow.job("run: {script: 'sleep 60'}\ntimeout: 300ms\nkill_grace: 100ms")
    hetuflow("job", "run", slow, "--wait", code=124)


def test_every_output_form_tells_the_same(hetuflow: Shell) -> None:
    name = hetuflow.job("run: {command: ['true']}")
    as_json = json.loads(hetuflow("job", "get", name, "-o", "json"))
    as_yaml = yaml.safe_load(hetuflow("job", "get", name, "-o", "yaml"))
    assert as_json["name"] == as_yaml["name"] == name
    assert as_json["spec"]["run"] == as_yaml["spec"]["run"]
    assert name in hetuflow("job", "list")
    listed = json.loads(hetuflow("job", "list", "-o", "json"))
    assert name in json.dumps(listed)


def test_tasks_are_listed_shown_read_cancelled_and_repeated(hetuflow: Shell) -> None:
    name = hetuflow.job("run: {script: 'echo from the task; sleep 60'}\nkill_grace: 100ms")
    task_id = json.loads(hetuflow("job", "run", name, "-o", "json"))["id"]
    wait_until(lambda: "from the task" in hetuflow("task", "logs", task_id), timeout=20, what="the log")
    assert task_id in hetuflow("task", "list", "--job", name, "--status", "running")
    hetuflow("task", "cancel", task_id)
    wait_until(lambda: "cancelled" in hetuflow("task", "get", task_id), timeout=20, what="the cancel")
    again = json.loads(hetuflow("task", "retry", task_id, "-o", "json"))
    assert again["retry_of"] == task_id
    hetuflow("task", "cancel", again["id"])


def test_following_a_log_ends_with_the_task(hetuflow: Shell) -> None:
    name = hetuflow.job("run: {script: 'for i in 1 2 3; do echo $i; sleep 0.1; done'}")
    task_id = json.loads(hetuflow("job", "run", name, "-o", "json"))["id"]
    assert hetuflow("task", "logs", "-f", task_id) == "1\n2\n3\n"


def test_ctrl_c_detaches_and_says_how_to_cancel(hetuflow: Shell, system: System) -> None:
    name = hetuflow.job("run: {script: 'echo started; sleep 60'}\nkill_grace: 100ms")
    command = [*HETUFLOW, "job", "run", name, "--logs"]
    with Running(command, env=system.environment(), cwd=hetuflow.folder) as waiting:
        wait_until(lambda: "started" in waiting.output, timeout=20, what="the first line")
        waiting.signal(signal.SIGINT)
        assert waiting.wait() == 130
        assert "task cancel" in waiting.output
    (task,) = system.client.tasks(job=name, status="running")
    system.client.cancel(task.id)


def test_errors_are_one_sentence_with_their_exit_code(hetuflow: Shell, system: System) -> None:
    hetuflow("job", "run", "no-such-job", code=3)
    assert "no-such-job" in hetuflow.stderr
    hetuflow("task", "get", str(uuid4()), code=3)
    hetuflow("job", "dance", code=2)
    (hetuflow.folder / "bad.yaml").write_text("kind: job\nname: x\nrnu: {}\n")
    hetuflow("apply", "-f", "bad.yaml", code=10)
    assert "bad.yaml:3:1" in hetuflow.stderr
    assert 'did you mean "run"' in hetuflow.stderr
    no_key = {**system.environment(), "HETUFLOW_API_KEY": "hk_x_y"}
    denied = run([*HETUFLOW, "job", "list"], env=no_key, cwd=hetuflow.folder)
    assert denied.returncode == 4
    away = {**system.environment(), "HETUFLOW_URL": "http://127.0.0.1:1"}
    unreachable = run([*HETUFLOW, "job", "list"], env=away, cwd=hetuflow.folder)
    assert unreachable.returncode == 5


def test_explain_fits_one_screen_and_names_the_agent(hetuflow: Shell) -> None:
    name = hetuflow.job("run: {command: ['true']}\nplacement: {labels: {zone: nowhere}}")
    task = hetuflow("job", "run", name, "-q").strip()
    told = hetuflow("task", "explain", task)
    assert re.search(r"worker +(labels +)?has the label zone=test, zone=nowhere is required", told)
    assert "to fix: Give an agent these labels" in told
    assert len(told.splitlines()) < 24
    said = json.loads(hetuflow("task", "explain", task, "-o", "json"))
    assert (said["code"], said["agents"]["sample"][0]["code"]) == ("placement", "labels")
    assert hetuflow("task", "explain", task, "-q") == "placement\n"
    hetuflow("task", "cancel", task)
    assert "It was cancelled" in hetuflow("task", "explain", task)


def test_status_shows_the_queue_and_the_agents(hetuflow: Shell) -> None:
    shown = hetuflow("status")
    assert "worker" in shown
    assert json.loads(hetuflow("status", "-o", "json"))
