"""Daemons through real processes: kept running, restarted, probed, updated, stopped and started."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import yaml

from hetuflow_core.resources.daemons import DaemonDetail
from tests.e2e.conftest import System
from tests.support.processes.processes import HETUFLOW, run
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]


def start(system: System, document: dict[str, Any]) -> str:
    """Apply a job with a daemon `up` under a name nobody else uses; return the name."""
    name = f"daemon-{uuid4().hex[:12]}"
    system.client.apply([{"kind": "job", **document, "name": name}])
    return name


def shown(system: System, job: str) -> DaemonDetail:
    return system.client.daemon("default", job)


def states(system: System, job: str) -> list[str]:
    return [slot.state for slot in shown(system, job).slots]


def command(system: System, *arguments: str) -> str:
    result = run([*HETUFLOW, "daemon", *arguments], env=system.environment())
    assert result.returncode == 0, result.stderr
    return result.stdout


def stop(system: System, job: str) -> None:
    system.client.stop_daemon(shown(system, job).id)
    wait_until(lambda: shown(system, job).state == "stopped", timeout=60, what="the daemon to stop")


def test_the_example_runs_scales_stops_and_starts(system: System) -> None:
    document = yaml.safe_load((ROOT / "examples/daemon.yaml").read_text(encoding="utf-8"))
    job = start(system, document)
    wait_until(lambda: states(system, job) == ["ready", "ready"], timeout=60, what="both to run")
    instances = [slot.instance_id for slot in shown(system, job).slots]
    listed = command(system, "list", "--job", job).split("\n")
    assert listed[1].split() == ["default", job, "up", "ready", "2/2", "2", "0"]
    assert command(system, "scale", job, "3") == f"The daemon {job}/up has 3 instances now.\n"
    wait_until(lambda: states(system, job) == ["ready"] * 3, timeout=60, what="the third")
    assert command(system, "scale", f"{job}/up", "2", "-q") == f"{job}/up\n"
    wait_until(lambda: states(system, job) == ["ready"] * 2, timeout=60, what="the third to go")
    assert [slot.instance_id for slot in shown(system, job).slots] == instances, "the others go on"
    assert "SLOT  STATE" in command(system, "get", job)
    stop(system, job)

    def said(instance: UUID | None) -> str:
        return system.client.logs(str(instance)).decode()

    goodbyes = [f"slot {slot}, start number 1\nslot {slot} says goodbye\n" for slot in (0, 1)]
    wait_until(lambda: list(map(said, instances)) == goodbyes, timeout=30, what="the logs")
    history = list(system.client.daemon_history(shown(system, job).id))
    assert [(run.slot, run.reason) for run in history if run.slot == 2] == [(2, "scaled_down")]
    assert {run.reason for run in history if run.slot != 2} == {"stopped"}
    assert len(command(system, "history", job, "--slot", "0", "-q").split()) == 1
    words = run([*HETUFLOW, "schedule", "next", f"{job}/up"], env=system.environment()).stdout
    assert words.startswith(
        f"{job}/up has no fire times: it keeps 2 instances running; an instance that ends"
    )
    assert command(system, "start", job) == f"The daemon {job}/up is started, with 2 instances.\n"
    wait_until(lambda: states(system, job) == ["ready", "ready"], timeout=60, what="both to run again")
    assert [slot.starts for slot in shown(system, job).slots] == [2, 2]
    stop(system, job)


def test_a_daemon_is_probed_and_an_update_waits_until_it_is_ready(system: System, tmp_path: Path) -> None:
    """One that never becomes ready stops the update; one that is not alive is started again."""
    old, new, alive = tmp_path / "old", tmp_path / "new", tmp_path / "alive"
    old.touch()
    alive.touch()

    def document(flag: Path) -> dict[str, Any]:
        often = {"interval": "500ms", "timeout": "30s", "failure_threshold": 1}
        daemon = {
            "replicas": 2,
            "backoff": {"delay": "100ms"},
            "readiness": {"command": ["test", "-e", str(flag)], **often},
            "liveness": {"command": ["test", "-e", str(alive)], **often},
        }
        return {
            "run": {"script": f"# {flag.name}\nexec sleep 1000"},
            "kill_grace": "5s",
            "schedules": [{"name": "up", "daemon": daemon}],
        }

    def slots(job: str) -> list[tuple[int | None, str]]:
        return sorted((slot.job_version or 0, slot.state) for slot in shown(system, job).slots)

    job = start(system, document(old))
    wait_until(lambda: slots(job) == [(1, "ready")] * 2, timeout=60, what="both to be ready")
    system.client.apply([{"kind": "job", "name": job, **document(new)}])
    wait_until(lambda: slots(job) == [(1, "ready"), (2, "running")], timeout=60, what="one of two")
    assert shown(system, job).state == "updating"
    new.touch()
    wait_until(lambda: slots(job) == [(2, "ready")] * 2, timeout=60, what="the update")
    alive.unlink()

    def failed() -> set[str | None]:
        return {
            run.reason
            for run in system.client.daemon_history(shown(system, job).id)
            if run.status == "failed"
        }

    wait_until(lambda: failed() == {"liveness_failed"}, timeout=60, what="the end of one that is not alive")
    stop(system, job)


def test_a_process_that_dies_is_followed_by_another(system: System, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = start(
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
        wait_until(lambda: states(system, job) == ["ready"], timeout=60, what="it to run")
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: started(3), timeout=60, what="the third start")
    found = shown(system, job)
    assert (found.restarts, found.slots[0].starts, found.slots[0].last_status) == (2, 3, "failed")
    stop(system, job)
