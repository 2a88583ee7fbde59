"""Commands that do something to many things at once, and to single attempts."""

from __future__ import annotations

import json
from uuid import uuid4

from tests.e2e.conftest import System
from tests.support.processes.processes import HETUFLOW, run


class Shell:
    def __init__(self, system: System) -> None:
        self.system = system
        self.stderr = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        result = run([*HETUFLOW, *arguments], env=self.system.environment())
        assert result.returncode == code, result.stdout + result.stderr
        self.stderr = result.stderr
        return result.stdout


def test_tasks_are_chosen_counted_and_cancelled(lone_server: System) -> None:
    hetuflow, client = Shell(lone_server), lone_server.client
    team = uuid4().hex[:8]
    jobs = [lone_server.apply(run={"command": ["true"]}, labels={"team": team}) for _ in range(2)]
    tasks = [client.run(job.id) for job in jobs for _ in range(2)]
    planned = json.loads(hetuflow("task", "cancel", "--job", jobs[0].name, "--dry-run", "-o", "json"))
    assert (planned["matched"], planned["changed"]) == (2, 0)
    hetuflow("task", "cancel", "-l", f"team={team}", code=10)
    assert "give --yes" in hetuflow.stderr
    assert client.task(tasks[0].id).status == "pending"
    told = hetuflow("task", "cancel", "-l", f"team={team}", "--since", "1h", "--yes")
    assert told == "4 tasks cancelled, 0 unchanged, 0 failed.\n"
    assert {client.task(task.id).status for task in tasks} == {"cancelled"}
    told = hetuflow("-y", "task", "retry", "--job", jobs[0].name, "--status", "cancelled")
    assert told == "2 tasks retried, 0 unchanged, 0 failed.\n"
    ids = hetuflow("task", "list", "--job", jobs[0].name, "--status", "pending", "-q").split()
    assert len(ids) == 2
    hetuflow("task", "priority", ids[0], "900")
    assert client.task(ids[0]).priority == 900
    assert set(hetuflow("task", "cancel", *ids, "-q").split()) == set(ids)
    for wrong in (
        ["task", "cancel"],
        ["task", "retry", ids[0], "--all"],
        ["task", "cancel", ids[0], "--dry-run"],
    ):
        hetuflow(*wrong, code=2)


def test_jobs_and_schedules_are_switched_together(lone_server: System) -> None:
    hetuflow, client = Shell(lone_server), lone_server.client
    team = uuid4().hex[:8]
    schedules = [{"name": name, "cron": "0 2 * * *"} for name in ("a", "b")]
    job = lone_server.apply(run={"command": ["true"]}, labels={"team": team}, schedules=schedules)
    assert hetuflow("schedule", "disable", "--job", job.name, "--yes").startswith("2 schedules disabled")
    assert {one.enabled for one in client.schedules(job=job.name)} == {False}
    hetuflow("schedule", "enable", f"{job.name}/a", f"{job.name}/b")
    assert {one.enabled for one in client.schedules(job=job.name)} == {True}
    assert hetuflow("job", "disable", "-l", f"team={team}", "-y").startswith("1 job disabled")
    assert not client.job("default", job.name).enabled
    assert hetuflow("job", "enable", job.name) == f"Job default/{job.name} is enabled.\n"


def test_single_attempts_are_listed_shown_and_ended(system: System) -> None:
    hetuflow, client = Shell(system), system.client
    job = system.apply(run={"script": "echo started; sleep 60"}, kill_grace="100ms")
    with_log = client.follow(client.run(job.id).id)
    next(item for item in with_log if getattr(item, "text", "") == "started\n")
    (listed,) = json.loads(
        hetuflow("instance", "list", "--job", job.name, "--status", "running", "-o", "json")
    )
    assert listed["agent"] == "worker"
    assert "status:    running" in hetuflow("instance", "get", listed["id"])
    assert hetuflow("instance", "logs", listed["id"]) == "started\n"
    hetuflow("instance", "terminate", listed["id"])
    ended = client.wait(listed["task_id"], timeout=60)
    assert (ended.status, ended.instances[-1].reason) == ("failed", "terminated")
