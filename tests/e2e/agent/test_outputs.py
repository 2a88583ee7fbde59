"""What tasks say of themselves: outputs, progress, what they took; on a real agent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hetuflow_core.resources.tasks import TaskDetail
from tests.e2e.conftest import System
from tests.support.processes.processes import HETUFLOW, run
from tests.support.waiting import wait_until


def finish(system: System, script: str, **spec: Any) -> TaskDetail:
    job = system.apply(run={"script": script}, **spec)
    return system.client.wait(system.client.run(job.id).id, timeout=60)


def test_an_output_is_kept_with_the_task_and_its_attempt(system: System) -> None:
    task = finish(system, 'echo rows=3 > "$HETUFLOW_OUTPUT"; echo name=x >> "$HETUFLOW_OUTPUT"')
    assert task.status == "succeeded"
    assert task.output == task.instances[0].output == {"rows": "3", "name": "x"}
    assert task.instances[0].usage is not None
    assert task.instances[0].usage["memory_peak"] > 100_000
    assert {"cpu_seconds", "read_bytes", "written_bytes"} < task.instances[0].usage.keys()
    shown = run([*HETUFLOW, "task", "get", str(task.id)], env=system.environment())
    assert '{"name":"x","rows":"3"}' in shown.stdout.replace(" ", "")
    as_json = run([*HETUFLOW, "task", "get", str(task.id), "-o", "json"], env=system.environment())
    assert json.loads(as_json.stdout)["output"] == {"rows": "3", "name": "x"}


def test_json_is_taken_as_it_is_and_failures_may_leave_some(system: System) -> None:
    script = """printf '{"files": ["a", "b"], "deep": {"n": 1.5}}' > "$HETUFLOW_OUTPUT"; exit 3"""
    task = finish(system, script)
    assert (task.status, task.exit_code) == ("failed", 3)
    assert task.output == {"files": ["a", "b"], "deep": {"n": 1.5}}


def test_an_output_that_cannot_be_kept_is_a_failure(system: System) -> None:
    large = finish(system, 'head -c 70000 /dev/zero | tr "\\0" x > "$HETUFLOW_OUTPUT"')
    assert (large.status, large.instances[0].reason) == ("failed", "output_too_large")
    wrong = finish(system, 'echo nonsense > "$HETUFLOW_OUTPUT"')
    assert (wrong.status, wrong.instances[0].reason) == ("failed", "output_invalid")
    assert "Line 1" in str(wrong.instances[0].message)


def test_progress_is_shown_while_it_runs(system: System, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    script = f'echo "40 loading" > "$HETUFLOW_PROGRESS"; until test -e {go_on}; do sleep 0.05; done'
    job = system.apply(run={"script": script}, lease="4s")
    task = system.client.run(job.id)

    def progress() -> Any:
        instances = system.client.task(task.id).instances
        return instances and instances[0].progress

    found = wait_until(progress, timeout=40, what="the progress")
    assert found == {"percent": 40, "message": "loading"}
    shown = run([*HETUFLOW, "task", "get", str(task.id)], env=system.environment())
    assert "40% loading" in shown.stdout
    go_on.touch()
    assert system.client.wait(task.id, timeout=60).instances[0].progress is None


def test_how_busy_the_host_is_comes_with_heartbeats(system: System) -> None:
    """An idle agent beats every half minute; one at work, several times per lease."""
    task = system.client.run(system.apply(run={"command": ["sleep", "60"]}, lease="4s").id)

    def usage() -> Any:
        worker = next(agent for agent in system.client.status().agents if agent.name == "worker")
        return worker.host_usage

    found = wait_until(usage, timeout=40, what="the host's usage")
    system.client.cancel(task.id)
    assert found["memory_total"] > found["memory_available"] > 0
    assert found.keys() == {"cpu_percent", "load", "memory_total", "memory_available", "disk_free"}
    shown = run([*HETUFLOW, "agent", "get", "worker"], env=system.environment())
    assert re.search(r"resources: +cpu [\d.]+, memory [\d.]+ GiB\n", shown.stdout)
    assert re.search(
        r"host: +cpu \d+ %, load [\d.]+, [\d.]+ of [\d.]+ GiB memory free, [\d.]+ GiB disk", shown.stdout
    )
