"""Daemons through real processes: kept running, restarted, stopped and started."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import yaml

from hetuflow_core.resources import Task
from tests.e2e.conftest import System
from tests.support.processes import HETUFLOW, run
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]


def daemon(system: System, document: dict[str, Any]) -> str:
    """Apply a job with a daemon `up` under a name nobody else uses; return the name."""
    name = f"daemon-{uuid4().hex[:12]}"
    system.client.apply([{"kind": "job", **document, "name": name}])
    return name


def tasks(system: System, job: str, status: str) -> list[Task]:
    return list(system.client.tasks(namespace="default", job=job, status=status))


class DaemonState:
    """What the database knows of a daemon."""

    def __init__(self, system: System, job: str) -> None:
        self._url, self._schedule = system.database_url, system.client.schedule("default", job, "up").id

    def ready(self) -> list[int]:
        """The versions of those that are ready."""
        return self._versions("AND d.ready_since IS NOT NULL")

    def versions(self) -> list[int]:
        return self._versions("")

    def _versions(self, which: str) -> list[int]:
        with psycopg.connect(self._url) as connection:
            rows = connection.execute(
                "SELECT i.job_version FROM sched_daemon_slot d JOIN sched_task_instance i "
                "ON i.schedule_id = d.schedule_id AND i.slot = d.slot AND i.status = 'running' "
                f"WHERE d.schedule_id = %s {which} ORDER BY 1",
                [self._schedule],
            )
            return [row[0] for row in rows]


def stop(system: System, job: str) -> None:
    system.client.disable_schedule(system.client.schedule("default", job, "up").id)
    wait_until(
        lambda: not tasks(system, job, "running") and not tasks(system, job, "pending"),
        timeout=60,
        what="the daemon to stop",
    )


def test_the_example_runs_stops_and_starts(system: System) -> None:
    document = yaml.safe_load((ROOT / "examples/daemon.yaml").read_text(encoding="utf-8"))
    job = daemon(system, document)
    running = wait_until(lambda: (found := tasks(system, job, "running"))[1:] and found, timeout=60)
    assert len(running) == 2
    logs = {one.id: system.client.task(one.id).instances[0].id for one in running}

    def said(instance: Any) -> str:
        return system.client.logs(instance).decode()

    stop(system, job)
    spoken = wait_until(
        lambda: (texts := sorted(map(said, logs.values())))[0].endswith("goodbye\n") and texts, timeout=30
    )
    assert spoken == [f"slot {slot}, start number 1\nslot {slot} says goodbye\n" for slot in (0, 1)]
    cancelled = tasks(system, job, "cancelled")
    assert {one.reason for one in cancelled} == {"stopped"}
    shown = run([*HETUFLOW, "schedule", "next", f"{job}/up"], env=system.environment())
    assert shown.stdout.startswith(f"{job}/up has no fires: it keeps 2 instances running; one that ends")
    system.client.enable_schedule(system.client.schedule("default", job, "up").id)
    wait_until(lambda: len(tasks(system, job, "running")) == 2, timeout=60)
    stop(system, job)


def test_a_daemon_is_probed_and_an_update_waits_until_it_is_ready(system: System, tmp_path: Path) -> None:
    """One that never becomes ready stops the update; one that is not alive is started again."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.touch()

    def document(flag: Path) -> dict[str, Any]:
        probe = {"command": ["test", "-e", str(flag)], "interval": "500ms", "failure_threshold": 1}
        return {
            "run": {"script": f"# {flag.name}\nexec sleep 1000"},
            "kill_grace": "5s",
            "schedules": [{"name": "up", "daemon": {"replicas": 2, "readiness": probe}}],
        }

    job = daemon(system, document(old))
    state = DaemonState(system, job)
    wait_until(lambda: state.ready() == [1, 1], timeout=60, what="both to be ready")
    system.client.apply([{"kind": "job", "name": job, **document(new)}])
    wait_until(
        lambda: state.ready() == [1] and state.versions() == [1, 2], timeout=60, what="the first of two"
    )
    new.touch()
    wait_until(lambda: state.ready() == [2, 2], timeout=60, what="the update")
    stop(system, job)


def test_a_process_that_dies_is_followed_by_another(system: System, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = daemon(
        system,
        {
            "run": {"script": f"echo $$ >> {pids}; exec sleep 1000"},
            "schedules": [{"name": "up", "daemon": {"backoff": {"delay": "100ms"}}}],
        },
    )

    def started(number: int) -> int:
        lines = pids.read_text(encoding="utf-8").split() if pids.exists() else []
        return int(lines[number - 1]) if len(lines) >= number else 0

    for number in (1, 2):
        pid = wait_until(lambda number=number: started(number), timeout=60, what="a start")
        wait_until(lambda: tasks(system, job, "running"), timeout=60)
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: started(3), timeout=60, what="the third start")
    assert [one.reason for one in tasks(system, job, "failed")] == [None, None]
    stop(system, job)
