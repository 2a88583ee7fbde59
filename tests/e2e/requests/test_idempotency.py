"""`Idempotency-Key` over HTTP: done once, answered as often as it is sent."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from hetuflow_core.access.roles import Role
from hetuflow_core.client import Hetuflow
from hetuflow_core.errors import Invalid
from hetuflow_core.resources.tasks import RunRequest
from tests.e2e.conftest import System
from tests.support.http.plain_http import UNENCRYPTED
from tests.support.http.routes import all_routes
from tests.support.waiting import wait_until

UNKEPT = {
    *("login", "refresh", "exchange_oidc_code", "logout", "change_own_password", "receive_webhook"),
    *("create_api_key", "rotate_api_key", "create_agent_token", "create_secret", "rotate_key"),
}


def send(system: System, path: str, key: str, body: Any, *, api_key: str | None = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {api_key or system.api_key}", "Idempotency-Key": key}
    return httpx.post(
        f"{system.url}/api/v1{path}", headers=headers, json=body, timeout=60, verify=UNENCRYPTED
    )


def document() -> dict[str, Any]:
    return {"name": f"job-{uuid4().hex[:12]}", "run": {"command": ["true"]}}


def test_the_same_request_is_done_once_and_answered_again(lone_server: System) -> None:
    key, wanted = uuid4().hex, document()
    first = send(lone_server, "/jobs", key, wanted)
    again = send(lone_server, "/jobs", key, wanted)
    assert (first.status_code, "idempotency-replayed" in first.headers) == (201, False)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    assert (again.content, again.headers["etag"]) == (first.content, first.headers["etag"])
    assert again.headers["content-type"] == first.headers["content-type"]
    trail = lone_server.get(f"/api/v1/audit?action=create_job&target={wanted['name']}").json()["items"]
    assert len(trail) == 1

    other = send(lone_server, "/jobs", key, document())
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key.reused")
    # Another caller has keys of its own: it is told what anybody is told without a key.
    editor = lone_server.client.create_api_key("another", role=Role.EDITOR).key
    theirs = send(lone_server, "/jobs", key, wanted, api_key=editor)
    assert (theirs.status_code, theirs.json()["code"]) == (409, "job.exists")


def test_what_failed_may_be_sent_again_under_its_key(lone_server: System) -> None:
    job = lone_server.client.create_job(document())
    lone_server.client.disable_job(job.id)
    key = uuid4().hex
    refused = send(lone_server, f"/jobs/{job.id}/run", key, {})
    assert (refused.status_code, refused.json()["code"]) == (409, "job.disabled")
    lone_server.client.enable_job(job.id)
    tasks = [send(lone_server, f"/jobs/{job.id}/run", key, {}).json()["id"] for _ in range(2)]
    assert [str(task.id) for task in lone_server.client.tasks(job=job.name)] == [tasks[0]]
    assert tasks[0] == tasks[1]


def test_a_run_of_a_job_that_has_changed_since_it_was_known_is_told_of_once(lone_server: System) -> None:
    """The first try is refused by the database and undone; what is kept and written down is the second."""
    job = lone_server.client.create_job(document())
    for version in (2, 3):
        lone_server.client.run_many(job.id, [RunRequest()])
        lone_server.client.change_job(job.id, {"params": {"a": version}})
        if version == 2:
            key = uuid4().hex
            made = [send(lone_server, f"/jobs/{job.id}/run", key, {}).json() for _ in range(2)]
            assert made[0] == made[1]
            assert made[0]["job_version"] == version
        else:
            lone_server.client.run_many(job.id, [RunRequest()])
    tasks = sorted(task.job_version for task in lone_server.client.tasks(job=job.name))
    assert tasks == [1, 2, 2, 3]
    trail = lone_server.get(f"/api/v1/audit?target={job.name}&limit=100").json()["items"]
    done = Counter(one["action"] for one in trail)
    assert done == {"create_job": 1, "change_job": 2, "run_job": 1, "run_job_many": 3}


def test_many_at_once_do_it_once(lone_server: System) -> None:
    job = lone_server.client.create_job(document())
    key, seen = uuid4().hex, list[list[UUID]]()

    def ask() -> None:
        with Hetuflow(lone_server.url, lone_server.api_key) as client:
            # While the first is being answered the others are told to come back, and do.
            tasks = client.once(key).run_many(job.id, [RunRequest(), RunRequest(priority=7)])
            seen.append([task.id for task in tasks])

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for waiting_poll in askers:
        waiting_poll.start()
    for waiting_poll in askers:
        waiting_poll.join()
    assert len(seen) == 4
    assert all(tasks == seen[0] for tasks in seen)
    assert {task.id for task in lone_server.client.tasks(job=job.name)} == set(seen[0])


def test_what_shows_a_secret_takes_no_key(lone_server: System) -> None:
    with pytest.raises(Invalid) as caught:
        lone_server.client.once(uuid4().hex).create_api_key("unkept")
    assert caught.value.code == "idempotency_key.unsupported"
    assert [key for key in lone_server.client.api_keys() if key.name == "unkept"] == []


def test_the_document_says_which_calls_take_one(lone_server: System) -> None:
    paths = lone_server.get("/api/v1/openapi.json").json()["paths"]
    posts = {one["post"]["operationId"]: one["post"] for one in paths.values() if "post" in one}
    keyed = {
        name: post
        for name, post in posts.items()
        if any(one["name"] == "Idempotency-Key" for one in post.get("parameters", []))
    }
    assert set(posts) == {route.operation_id for route in all_routes() if route.method == "POST"}
    assert set(posts) - set(keyed) == UNKEPT
    assert all({"409", "422"} <= set(post["responses"]) for post in keyed.values())


_LOCK = "SELECT FROM sched_job WHERE name = %s FOR UPDATE"
_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND %s = ANY(pg_blocking_pids(pid))"""


@pytest.mark.parametrize("key", [None, "deadlocked"], ids=["without a key", "with a key"])
def test_a_deadlock_is_said_to_pass_and_leaves_nothing(lone_server: System, key: str | None) -> None:
    """The request is the one the database ends, because its wait is the one that closes the ring."""
    names = [f"{place}-{uuid4().hex[:12]}" for place in "abc"]
    lone_server.client.apply([{**document(), "kind": "job", "name": name} for name in names])
    body = {"documents": [{**document(), "kind": "job", "name": name, "priority": 7} for name in names]}
    headers = {"Authorization": f"Bearer {lone_server.api_key}"} | ({"Idempotency-Key": key} if key else {})

    def ask() -> httpx.Response:
        return httpx.post(
            f"{lone_server.url}/api/v1/apply", headers=headers, json=body, timeout=60, verify=UNENCRYPTED
        )

    with ExitStack() as opened:
        url = lone_server.database_url
        first, rival, watch = (opened.enter_context(psycopg.connect(url)) for _ in range(3))
        watch.autocommit = True

        def holds_up(holder: psycopg.Connection[Any]) -> bool:
            (count,) = watch.execute(_WAITING, [holder.info.backend_pid]).fetchone() or (0,)
            return bool(count)

        # Never the one to look for a ring.
        rival.execute("SET LOCAL deadlock_timeout = '10min'")
        first.execute(_LOCK, [names[1]])
        rival.execute(_LOCK, [names[2]])
        askers = opened.enter_context(ThreadPoolExecutor(2))
        asked = askers.submit(ask)
        wait_until(lambda: holds_up(first), what="the request to wait")
        crossing = askers.submit(rival.execute, _LOCK, [names[0]])
        wait_until(lambda: _is_held_up(watch, rival), what="its rival to wait for it")
        first.rollback()
        answer = asked.result()
        crossing.result()
    assert (answer.status_code, answer.json()["code"]) == (503, "database.busy")
    assert int(answer.headers["retry-after"]) >= 1
    assert [lone_server.client.job("default", name).version for name in names] == [1, 1, 1]
    again = [ask() for _ in range(2)]
    assert [one.status_code for one in again] == [200, 200]
    assert ["idempotency-replayed" in one.headers for one in again] == [False, key is not None]
    assert [lone_server.client.job("default", name).version for name in names] == [2, 2, 2]


def _is_held_up(watch: psycopg.Connection[Any], waiter: psycopg.Connection[Any]) -> bool:
    (by,) = watch.execute("SELECT pg_blocking_pids(%s)", [waiter.info.backend_pid]).fetchone() or ([],)
    return bool(by)
