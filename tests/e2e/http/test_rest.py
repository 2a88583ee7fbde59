"""The REST API's promises: documents, runs, lists, errors, roles and namespaces."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from hetuflow_core.client import Hetuflow
from hetuflow_core.errors import Conflict, Denied, Invalid, NotFound, Unauthenticated
from hetuflow_core.resources.tasks import RunRequest
from tests.e2e.conftest import System, command_on
from tests.support.http.plain_http import UNENCRYPTED

RUN = {"run": {"command": ["true"]}}


def document(name: str | None = None, **spec: Any) -> dict[str, Any]:
    return {"kind": "job", "name": name or f"job-{uuid4().hex[:12]}", **RUN, **spec}


def test_applying_twice_changes_once(lone_server: System) -> None:
    wanted = document(priority=7)
    actions = [lone_server.client.apply([wanted]).items[0] for _ in range(2)]
    assert [(a.action, a.version) for a in actions] == [("created", 1), ("unchanged", 1)]
    changed = lone_server.client.apply([{**wanted, "priority": 8, "timeout": "1m"}]).items[0]
    assert (changed.action, changed.version) == ("changed", 2)
    assert changed.changes == ["priority", "timeout"]
    job = lone_server.client.job("default", wanted["name"])
    assert (job.version, job.spec["priority"], job.spec["timeout"]) == (2, 8, "1m")


def test_a_dry_run_says_and_does_nothing(lone_server: System) -> None:
    wanted = document()
    planned = lone_server.client.apply([wanted], dry_run=True)
    assert planned.dry_run
    assert planned.items[0].action == "created"
    with pytest.raises(NotFound):
        lone_server.client.job("default", wanted["name"])


def test_documents_are_applied_all_or_none(lone_server: System) -> None:
    good = document()
    with pytest.raises(NotFound, match="namespace"):
        lone_server.client.apply([good, document(namespace="nowhere")])
    with pytest.raises(NotFound):
        lone_server.client.job("default", good["name"])


def test_all_faults_are_named_with_their_places(lone_server: System) -> None:
    with pytest.raises(Invalid) as caught:
        lone_server.client.apply([document(), document(priority=2000, timeuot="1m"), {"kind": "job"}])
    places = {fault.field for fault in caught.value.faults}
    assert {"documents[1].priority", "documents[1].timeuot", "documents[2]"} <= places
    assert any('did you mean "timeout"' in fault.message for fault in caught.value.faults)
    assert caught.value.code == "job.invalid"


def test_what_is_not_enforced_yet_is_refused(lone_server: System) -> None:
    for spec in ({"schedules": [{"cron": "@daily"}]}, {"flow": {"nodes": [{"name": "a"}]}}):
        with pytest.raises(Invalid, match="fault"):
            lone_server.client.apply([document(**spec)])


def test_running_merges_parameters_and_keeps_the_version(lone_server: System) -> None:
    wanted = document(params={"a": 1, "b": 2})
    lone_server.client.apply([wanted])
    job = lone_server.client.job("default", wanted["name"])
    run_at = datetime.now(UTC) + timedelta(days=1)
    task = lone_server.client.run(job.id, params={"b": 3}, priority=9, run_at=run_at)
    assert (task.params, task.priority, task.status, task.due_at) == ({"a": 1, "b": 3}, 9, "pending", run_at)
    lone_server.client.apply([{**wanted, "priority": 1}])
    assert lone_server.client.task(task.id).job_version == 1
    cancelled = lone_server.client.cancel(task.id)
    assert (cancelled.status, cancelled.attempts) == ("cancelled", 0)


def test_runs_that_cannot_work_are_refused_with_the_reason(lone_server: System) -> None:
    job = lone_server.apply(run={"command": ["echo", "{{ params.who }}"]})
    with pytest.raises(Invalid) as caught:
        lone_server.client.run_many(job.id, [RunRequest(params={"who": "x"}), RunRequest(priority=5000)])
    assert {fault.field for fault in caught.value.faults} == {"runs[1].priority", "runs[1].params"}
    assert list(lone_server.client.tasks(job=job.name)) == []


def test_an_idempotency_key_runs_once_also_at_the_same_time(lone_server: System) -> None:
    job = lone_server.apply(**RUN)
    key = uuid4().hex
    seen: list[Any] = []

    def ask() -> None:
        with Hetuflow(lone_server.url, lone_server.api_key) as client:
            seen.append(client.run(job.id, params={"n": 1}, idempotency_key=key).id)

    askers = [threading.Thread(target=ask) for _ in range(6)]
    for waiting_poll in askers:
        waiting_poll.start()
    for waiting_poll in askers:
        waiting_poll.join()
    assert len(seen) == 6
    assert len(set(seen)) == 1
    assert len(list(lone_server.client.tasks(job=job.name))) == 1
    with pytest.raises(Invalid, match="another request") as caught:
        lone_server.client.run(job.id, params={"n": 2}, idempotency_key=key)
    assert caught.value.code == "idempotency_key.reused"


def test_lists_are_paged_filtered_and_counted(lone_server: System) -> None:
    job = lone_server.apply(**RUN)
    tasks = lone_server.client.run_many(job.id, [RunRequest() for _ in range(7)])
    listed = list(lone_server.client.tasks(job=job.name, page_size=3))
    assert [task.id for task in listed] == sorted((task.id for task in tasks), reverse=True)
    page = lone_server.get(f"/api/v1/tasks?job={job.name}&limit=3").json()
    assert (len(page["items"]), page["total"], page["total_capped"]) == (3, 7, False)
    assert page["next_cursor"]
    lone_server.client.cancel(tasks[0].id)
    cancelled = list(lone_server.client.tasks(job=job.name, status="cancelled"))
    assert [task.id for task in cancelled] == [tasks[0].id]
    later = datetime.now(UTC) + timedelta(minutes=1)
    assert list(lone_server.client.tasks(job=job.name, since=later)) == []
    oldest = lone_server.client.tasks(job=job.name, until=later, oldest_first=True, page_size=3)
    assert [task.id for task in oldest] == [task.id for task in listed[::-1]]


def test_what_a_list_does_not_know_is_refused_with_what_it_does(lone_server: System) -> None:
    misspelt = lone_server.get("/api/v1/tasks?stauts=failed&job=x")
    assert (misspelt.status_code, misspelt.json()["code"]) == (422, "query.invalid")
    assert misspelt.json()["errors"] == [
        {"field": "stauts", "message": "is not known here: did you mean status?"}
    ]
    sorted_otherwise = lone_server.get("/api/v1/tasks?sort=-creatd_at")
    assert sorted_otherwise.json()["errors"][0]["message"].endswith('did you mean "-created_at"?')
    assert lone_server.get("/api/v1/tasks?label=nonsense").status_code == 422
    assert (
        lone_server.get("/api/v1/system/info?x=1").json()["errors"][0]["message"].endswith("it takes none.")
    )


def test_retry_makes_a_new_task_of_a_finished_one(lone_server: System) -> None:
    job = lone_server.apply(**RUN, params={"x": 1})
    task = lone_server.client.run(job.id, params={"x": 2})
    with pytest.raises(Conflict, match="not ended"):
        lone_server.client.retry(task.id)
    lone_server.client.cancel(task.id)
    first, second = (lone_server.client.retry(task.id) for _ in range(2))
    assert first.id != second.id != task.id
    assert (first.retry_of, first.params, first.status) == (task.id, {"x": 2}, "pending")
    assert lone_server.client.task(task.id).status == "cancelled"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/jobs/01890000-0000-7000-8000-000000000001", None, 404, "job.not_found"),
        ("GET", "/tasks/01890000-0000-7000-8000-000000000001", None, 404, "task.not_found"),
        ("POST", "/tasks/01890000-0000-7000-8000-000000000001/cancel", None, 404, "task.not_found"),
        (
            "GET",
            "/task-instances/01890000-0000-7000-8000-000000000001/logs",
            None,
            404,
            "task_instance.not_found",
        ),
        ("GET", "/tasks/not-an-id", None, 404, "not_found"),
        ("GET", "/tasks?limit=0", None, 422, "invalid"),
        ("GET", "/tasks?limit=501", None, 422, "invalid"),
        ("GET", "/tasks?status=weird", None, 422, "invalid"),
        ("GET", "/tasks?since=yesterday", None, 422, "invalid"),
        ("GET", "/tasks?cursor=%21%21", None, 422, "cursor.invalid"),
        ("POST", "/apply", b"{", 400, "request.malformed"),
        ("POST", "/apply", b'{"documents": 1}', 422, "invalid"),
        ("POST", "/apply", b'{"documents": [], "extra": 1}', 422, "invalid"),
        ("DELETE", "/tasks", None, 405, "request.method"),
    ],
)
def test_bad_input_gets_a_problem_with_a_stable_code(
    lone_server: System, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    answer = httpx.request(
        method,
        f"{lone_server.url}/api/v1{path}",
        content=body,
        headers={"Authorization": f"Bearer {lone_server.api_key}", "Content-Type": "application/json"},
        verify=UNENCRYPTED,
    )
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "status", "detail", "trace_id"} <= problem.keys()


def test_keys_are_kept_as_digests_and_end_when_they_are_revoked(lone_server: System) -> None:
    key = command_on(lone_server.database_url, "key", "create", "--role", "viewer", "--name", "short", "-q")
    expired = command_on(lone_server.database_url, "key", "create", "--expires-in", "1ms", "-q")
    with psycopg.connect(lone_server.database_url) as connection:
        rows = connection.execute(
            "SELECT prefix, encode(digest, 'escape'), name FROM sched_api_key"
        ).fetchall()
        assert key.split("_", 2)[2] not in str(rows)
        connection.execute("UPDATE sched_api_key SET revoked_at = now() WHERE name = 'short'")
    for dead in (key, expired, key[:-1] + "x"):
        with Hetuflow(lone_server.url, dead) as client, pytest.raises(Unauthenticated):
            client.info()


def test_a_role_may_do_what_it_may_and_nothing_more(lone_server: System) -> None:
    job = lone_server.apply(**RUN)
    clients = {
        role: Hetuflow(
            lone_server.url,
            command_on(lone_server.database_url, "key", "create", "--role", role, "-q"),
        )
        for role in ("viewer", "operator", "editor")
    }
    try:
        assert clients["viewer"].job_by_id(job.id).name == job.name
        with pytest.raises(Denied):
            clients["viewer"].run(job.id)
        task = clients["operator"].run(job.id)
        with pytest.raises(Denied):
            clients["viewer"].cancel(task.id)
        clients["operator"].cancel(task.id)
        with pytest.raises(Denied):
            clients["operator"].apply([document()])
        clients["editor"].apply([document()])
        with pytest.raises(Denied):
            clients["editor"].apply([{"kind": "namespace", "name": f"ns-{uuid4().hex[:8]}"}])
    finally:
        for client in clients.values():
            client.close()


def test_another_namespace_does_not_exist_for_a_key_of_one(lone_server: System) -> None:
    namespace = f"ns-{uuid4().hex[:8]}"
    lone_server.client.apply([{"kind": "namespace", "name": namespace}])
    key = command_on(lone_server.database_url, "key", "create", "--role", "admin", "-n", namespace, "-q")
    foreign = lone_server.apply(**RUN)
    task = lone_server.client.run(foreign.id)
    with Hetuflow(lone_server.url, key) as client:
        client.apply([document(name="own", namespace=namespace)])
        assert [job.name for job in client.jobs()] == ["own"]
        assert list(client.jobs(namespace="default")) == []
        assert list(client.tasks()) == []
        for ask in (
            lambda: client.job_by_id(foreign.id),
            lambda: client.run(foreign.id),
            lambda: client.task(task.id),
            lambda: client.cancel(task.id),
            lambda: client.retry(task.id),
            lambda: client.logs(task.instances[0].id),
            lambda: client.apply([document(namespace="default")]),
        ):
            with pytest.raises(NotFound):
                ask()
    assert lone_server.client.cancel(task.id).status == "cancelled"


def test_openapi_is_complete_for_what_there_is_and_needs_a_key(lone_server: System) -> None:
    assert httpx.get(f"{lone_server.url}/api/v1/openapi.json").status_code == 401
    schema = lone_server.get("/api/v1/openapi.json").json()
    operations = {
        (method.upper(), path): operation
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    }
    assert {
        ("POST", "/api/v1/apply"),
        ("GET", "/api/v1/jobs"),
        ("GET", "/api/v1/jobs/{job_id}"),
        ("POST", "/api/v1/jobs/{job_id}/run"),
        ("POST", "/api/v1/jobs/{job_id}/runs"),
        ("GET", "/api/v1/tasks"),
        ("GET", "/api/v1/tasks/{task_id}"),
        ("POST", "/api/v1/tasks/{task_id}/cancel"),
        ("POST", "/api/v1/tasks/{task_id}/retry"),
        ("GET", "/api/v1/task-instances/{instance_id}/logs"),
        ("GET", "/api/v1/task-instances/{instance_id}/logs/stream"),
    } <= operations.keys()
    assert not any("gateway" in path for _, path in operations)
    for (method, path), operation in operations.items():
        if path.startswith("/api/v1/"):
            assert "401" in operation["responses"], path
            assert PROBLEM in operation["responses"]["401"]["content"], path
        # To who brings no good signature, a hook that does not exist looks like one that does.
        if "{" in path and not path.startswith("/api/v1/hooks/"):
            assert "404" in operation["responses"], path
        if method != "GET":
            assert "403" in operation["responses"], f"{method} {path}"


PROBLEM = "application/problem+json"
