"""Following the tasks of a namespace over HTTP."""

from __future__ import annotations

from uuid import uuid4

import httpx

from hetuflow_core.access.roles import Role
from hetuflow_core.client.task_following import TasksOpened
from hetuflow_core.resources.tasks import TaskChange
from tests.e2e.conftest import System


def test_what_becomes_of_a_task_is_told_as_it_happens(system: System) -> None:
    job = system.apply(run={"command": ["true"]})
    stream = system.client.follow_tasks("default")
    opened = next(stream)
    assert isinstance(opened, TasksOpened)
    assert not opened.start_over
    task = system.client.run(job.id)
    told = []
    for change in stream:
        if isinstance(change, TaskChange) and change.task_id == task.id:
            told.append(change)
            if change.finished_at is not None:
                break
    stream.close()
    assert [change.status for change in told] == ["pending", "running", "succeeded"]
    assert {(change.job, change.instance_id) for change in told} == {(job.name, task.instances[0].id)}


def test_a_stream_ends_with_the_rights_to_it(lone_server: System) -> None:
    namespace = f"followed-{uuid4().hex[:8]}"
    lone_server.client.apply([{"kind": "namespace", "name": namespace}])
    lone_server.client.create_job({"namespace": namespace, "name": "it", "run": {"command": ["true"]}})
    job = lone_server.client.job(namespace, "it")
    key = lone_server.client.create_api_key("follower", role=Role.VIEWER, namespace=namespace)
    url = f"{lone_server.url}/api/v1/namespaces/{namespace}/tasks/stream"
    headers = {"Authorization": f"Bearer {key.key}"}
    assert httpx.get(f"{lone_server.url}/api/v1/namespaces/default/tasks/stream", headers=headers).json()[
        "code"
    ] == ("namespace.not_found")
    bad = httpx.get(url, headers={**headers, "Last-Event-ID": "nonsense"})
    assert (bad.status_code, bad.json()["code"]) == (422, "position.invalid")
    with httpx.stream("GET", url, headers=headers, timeout=60) as answer:
        lines = answer.iter_lines()
        assert next(line for line in lines if line.startswith("event:")) == "event: open"
        lone_server.client.revoke_api_key(key.id)
        # Believed for a second more, at most: of these some may still be told, but the stream ends.
        told = 0
        lone_server.client.run(job.id)
        for line in lines:
            if line.startswith("event: task"):
                told += 1
                lone_server.client.run(job.id)
            assert told < 100
