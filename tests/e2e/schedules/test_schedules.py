"""Schedules through real processes: each fire once, also when the leader is killed; overlap; backfills."""

from __future__ import annotations

import json
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from hetuflow_core.client import Hetuflow
from hetuflow_core.resources.schedules import Schedule
from hetuflow_core.resources.tasks import Task
from tests.e2e.conftest import System, command_on
from tests.support.postgres.databases import DatabaseServer
from tests.support.processes.processes import AGENT, HETUFLOW, Running, measured_environment, run
from tests.support.waiting import wait_until

SECOND = timedelta(seconds=1)
TTL = 4


def scheduled(client: Hetuflow, command: list[str], **schedule: Any) -> Schedule:
    """Apply a job with one schedule under a name nobody else uses."""
    name = f"job-{uuid4().hex[:12]}"
    spec = {"name": "it", "cron": "* * * * * *", **schedule}
    client.apply([{"kind": "job", "name": name, "run": {"command": command}, "schedules": [spec]}])
    return client.schedule("default", name, "it")


def ended(client: Hetuflow, schedule: Schedule, status: str = "succeeded") -> list[Task]:
    """Its tasks that have ended so, in the order of their fires."""
    tasks = client.tasks(namespace="default", job=schedule.job, status=status)
    return sorted(tasks, key=lambda task: task.fire_at)


def written(path: Path) -> list[str]:
    return sorted(path.read_text(encoding="utf-8").splitlines()) if path.exists() else []


def appending(path: Path) -> list[str]:
    return ["sh", "-c", f'echo "$HETUFLOW_SCHEDULED_AT" >> {path}']


def test_a_cron_with_seconds_runs_every_second_and_stops_when_disabled(
    system: System, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    schedule = scheduled(system.client, appending(marks))
    wait_until(lambda: len(ended(system.client, schedule)) >= 4, timeout=60, what="four fires")
    system.client.disable_schedule(schedule.id)
    wait_until(lambda: not ended(system.client, schedule, "pending"), timeout=30, what="the rest to end")
    wait_until(lambda: not ended(system.client, schedule, "running"), timeout=30, what="the rest to end")
    tasks = ended(system.client, schedule)
    fires = [task.fire_at for task in tasks]
    assert fires == [fires[0] + n * SECOND for n in range(len(fires))]
    assert len(written(marks)) == len(set(written(marks))) == len(fires)
    started = [system.client.task(task.id).instances[0].started_at for task in tasks[:4]]
    assert all(at is not None and at >= fire for at, fire in zip(started, fires, strict=False))
    assert system.client.schedule_by_id(schedule.id).next_fire_at is None


@pytest.mark.timeout(300)  # five processes start one after the other, which takes minutes on a busy machine
def test_each_fire_runs_once_although_the_leader_is_killed(
    database_server: DatabaseServer, tmp_path: Path
) -> None:
    """The server that leads is killed with SIGKILL, and an edit makes the other one generate anew."""
    database_url, marks = database_server.clone(f"e2e_{uuid4().hex[:12]}"), tmp_path / "marks"
    api_key = command_on(database_url, "key", "create", "--role", "admin", "-q")
    token = command_on(database_url, "agent", "token", "create", "-q")
    environment = measured_environment(
        HETUFLOW_DATABASE__URL=database_url,
        HETUFLOW_SERVER__SECRET_KEY="s" * 48,
        HETUFLOW_SERVER__PORT="0",
        HETUFLOW_LEADER__TTL=f"{TTL}s",
    )
    with Running([*HETUFLOW, "server"], env=environment) as leader:
        leader.await_log("This server leads.", timeout=90)
        with Running([*HETUFLOW, "server"], env=environment) as other:
            url = other.await_log("listening", timeout=90)["url"]
            agent = measured_environment(
                HETUFLOW_AGENT__SERVER_URL=url,
                HETUFLOW_AGENT__TOKEN=token,
                HETUFLOW_AGENT__SLOTS="8",
                HETUFLOW_AGENT__DATA_DIR=str(tmp_path / "data"),
            )
            with Running(AGENT, env=agent), Hetuflow(url, api_key) as client:
                schedule = scheduled(client, appending(marks))
                wait_until(lambda: len(ended(client, schedule)) >= 2, timeout=60, what="two fires")
                leader.signal(signal.SIGKILL)
                leader.wait()
                edited = client.change_schedule(schedule.id, {"priority": 600})
                other.await_log("This server leads.", timeout=60)
                wait_until(
                    lambda: len([t for t in ended(client, schedule) if t.priority == 600]) >= 3,
                    timeout=60,
                    what="fires of the new leader",
                )
                client.disable_schedule(schedule.id)
                wait_until(
                    lambda: not ended(client, schedule, "pending") and not ended(client, schedule, "running"),
                    timeout=60,
                    what="the rest to end",
                )
                tasks = ended(client, schedule)
    fires = [task.fire_at for task in tasks]
    assert len(set(fires)) == len(fires)
    # While nobody led nothing was generated; all of it was made up for within the grace.
    assert fires == [fires[0] + n * SECOND for n in range(len(fires))]
    assert [task.priority for task in tasks] == sorted(task.priority for task in tasks)
    assert min(task.fire_at for task in tasks if task.priority == 600) > edited.updated_at - SECOND
    assert len(written(marks)) == len(set(written(marks))) == len(fires)


@pytest.mark.parametrize(("overlap", "status"), [("skip", "skipped"), ("queue_one", "skipped")])
def test_fires_that_may_not_overlap_do_not(system: System, tmp_path: Path, overlap: str, status: str) -> None:
    """Each run is longer than the time between two fires; whoever meets another writes it down."""
    alone, met = tmp_path / "alone", tmp_path / "met"
    script = f"mkdir {alone} || echo met >> {met}; sleep 1.5; rmdir {alone}"
    schedule = scheduled(system.client, ["sh", "-c", script], overlap=overlap)
    wait_until(lambda: len(ended(system.client, schedule)) >= 3, timeout=90, what="three runs")
    wait_until(lambda: ended(system.client, schedule, status), timeout=30, what="a fire in between")
    system.client.disable_schedule(schedule.id)
    assert written(met) == []
    assert {task.reason for task in ended(system.client, schedule, status)} == {"overlap"}
    for task in ended(system.client, schedule, "pending"):
        system.client.cancel(task.id)


def test_a_newer_fire_cancels_the_one_that_runs(system: System) -> None:
    schedule = scheduled(system.client, ["sleep", "60"], every="3s", cron=None, overlap="cancel_running")
    wait_until(
        lambda: len(ended(system.client, schedule, "cancelled")) >= 2, timeout=90, what="two to give way"
    )
    system.client.disable_schedule(schedule.id)
    running = ended(system.client, schedule, "running")
    assert len(running) <= 1
    for task in [*running, *ended(system.client, schedule, "pending")]:
        system.client.cancel(task.id)


def test_a_backfill_and_the_commands_around_it(system: System, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    schedule = scheduled(system.client, appending(marks), cron="0 2 * * *", enabled=False)
    which = f"{schedule.job}/it"

    def hetuflow(*arguments: str) -> Any:
        done = run([*HETUFLOW, *arguments], env=system.environment())
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "json" in arguments else done.stdout

    span = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-07T23:59:59Z")
    planned = hetuflow("schedule", "backfill", which, *span, "--dry-run", "-o", "json")
    assert (planned["total"], planned["state"], planned["id"]) == (7, "planned", None)
    assert planned["fires"][0] == "2026-01-01T02:00:00Z"
    assert written(marks) == []
    done = hetuflow("schedule", "backfill", which, *span, "--parallel", "2", "--wait", "-o", "json")
    assert (done["state"], done["done"], done["failed"], done["running"]) == ("succeeded", 7, 0, 0)
    assert [line[:10] for line in written(marks)] == [f"2026-01-0{day}" for day in range(1, 8)]
    (listed,) = hetuflow("backfill", "list", which, "-o", "json")
    assert listed["id"] == done["id"]

    assert "is enabled" in hetuflow("schedule", "enable", which)
    (shown,) = hetuflow("schedule", "list", "--job", schedule.job, "-o", "json")
    assert datetime.fromisoformat(shown["next_fire_at"]).hour == 2
    assert "is disabled" in hetuflow("schedule", "disable", which)
    assert "0 2 * * *" in hetuflow("schedule", "get", which)
    assert "is disabled" in hetuflow("job", "disable", schedule.job)
    assert "is enabled" in hetuflow("job", "enable", schedule.job)
    assert "is deleted" in hetuflow("schedule", "delete", which)
    assert "is deleted" in hetuflow("job", "delete", schedule.job)
    gone = run([*HETUFLOW, "job", "get", schedule.job], env=system.environment())
    assert gone.returncode != 0
