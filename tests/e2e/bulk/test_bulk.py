"""Many tasks, jobs and schedules at once over HTTP; and single attempts, which a real agent ends."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest

from hetuflow_core.errors import Conflict, Invalid
from hetuflow_core.resources.tasks import RunRequest
from tests.e2e.conftest import System
from tests.support.waiting import wait_until


def test_tasks_are_cancelled_and_repeated_by_filter(lone_server: System) -> None:
    client, team = lone_server.client, uuid4().hex[:12]
    job = lone_server.apply(run={"command": ["true"]}, labels={"team": team})
    tasks = client.run_many(job.id, [RunRequest(priority=n) for n in range(3)])
    tried = client.cancel_many(labels={"team": team}, dry_run=True)
    assert (tried.dry_run, tried.matched, len(tried.sample)) == (True, 3, 3)
    assert {client.task(task.id).status for task in tasks} == {"pending"}
    done = client.cancel_many(labels={"team": team})
    assert (done.matched, done.changed, done.failed, done.cut) == (3, 3, [], False)
    repeated = client.retry_many(job=job.name, status="cancelled")
    assert (repeated.matched, repeated.changed) == (3, 3)
    assert len(list(client.tasks(job=job.name, status="pending"))) == 3
    assert client.retry_many(job=job.name, status="cancelled").changed == 0
    trail = lone_server.get("/api/v1/audit?action=cancel_tasks&limit=500").json()["items"]
    assert {str(task.id) for task in tasks} <= {entry["target"] for entry in trail}


def test_jobs_and_schedules_are_switched_by_filter(lone_server: System) -> None:
    client, team = lone_server.client, uuid4().hex[:12]
    job = lone_server.apply(
        run={"command": ["true"]}, labels={"team": team}, schedules=[{"name": team, "every": "1d"}]
    )
    assert client.switch_jobs(enabled=False, labels={"team": team}).changed == 1
    assert not client.job_by_id(job.id).enabled
    assert client.switch_schedules(enabled=False, name=team).changed == 1
    assert client.switch_schedules(enabled=True, name=team, dry_run=True).sample[0].name.endswith(team)
    assert client.switch_jobs(enabled=True, labels={"team": team}).changed == 1


def test_a_forgotten_filter_is_refused(lone_server: System) -> None:
    for path in ("tasks/bulk/cancel", "tasks/bulk/retry", "jobs/bulk/disable", "schedules/bulk/disable"):
        answer = httpx.post(
            f"{lone_server.url}/api/v1/{path}",
            headers={"Authorization": f"Bearer {lone_server.api_key}"},
            json={"filter": {}},
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "bulk.filter_empty"), path
    with pytest.raises(Invalid, match="have ended and cannot be cancelled"):
        lone_server.client.cancel_many(status="failed")


def test_an_attempt_is_terminated_and_the_task_tried_again(system: System) -> None:
    client = system.client
    job = system.apply(
        run={"command": ["sh", "-c", '[ "$HETUFLOW_ATTEMPT" != 1 ] || sleep 300']},
        retry={"max_attempts": 2, "delay": "0s"},
        kill_grace="1s",
    )
    task = client.set_priority(client.run(job.id).id, 900)
    assert task.priority == 900

    def running() -> bool:
        return client.task(task.id).status == "running"

    wait_until(running, timeout=60, what="the first attempt")
    (first,) = client.task_instances(job=job.name, status="running")
    assert first.job == job.name
    client.terminate(first.id)
    ended = client.wait(task.id, timeout=120)
    assert ended.status == "succeeded"
    assert (ended.instances[0].status, ended.instances[0].reason) == ("failed", "terminated")
    assert len(list(client.task_instances(job=job.name))) == 2
    with pytest.raises(Conflict) as caught:
        client.terminate(first.id)
    assert caught.value.code == "task_instance.not_running"
