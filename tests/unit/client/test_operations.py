"""What each call asks for, and what it makes of the answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import msgspec
import pytest

from hetuflow_core.client.exchange import NoAnswer, Request
from hetuflow_core.client.operations import bulk, jobs, task_instances, tasks
from hetuflow_core.errors import NotFound, ServerUnreachable
from hetuflow_core.resources.apply import ApplyAction
from hetuflow_core.resources.jobs import Job
from hetuflow_core.resources.tasks import RunRequest, Task, TaskDetail
from tests.unit.client.plan_script import REFUSED, URL, Script, good, problem, streamed

ID = UUID("01890f3e-7b3c-7cc0-98c4-dc0c0c07398f")
AT = datetime(2026, 7, 1, tzinfo=UTC)


def a_job(name: str = "etl", namespace: str = "default") -> Job:
    return Job(
        id=ID,
        namespace=namespace,
        name=name,
        enabled=True,
        version=1,
        labels={},
        created_at=AT,
        updated_at=AT,
        spec={},
    )


def a_task(kind: type[Task] = TaskDetail, **changes: Any) -> Task:
    values: dict[str, Any] = {
        "id": ID,
        "namespace": "default",
        "job": "etl",
        "job_id": ID,
        "job_version": 1,
        "status": "pending",
        "reason": None,
        "params": {},
        "priority": 500,
        "fire_at": AT,
        "due_at": AT,
        "attempts": 0,
        "losses": 0,
        "exit_code": None,
        "retry_of": None,
        "created_by": None,
        "created_at": AT,
        "finished_at": None,
    }
    return kind(**{**values, **changes})


def page(*items: Any, cursor: str | None = None) -> Any:
    return good({"items": items, "next_cursor": cursor, "total": 9, "total_capped": False})


def test_apply() -> None:
    item = {"kind": "job", "namespace": "default", "name": "etl", "action": "created", "version": 1}
    script = Script(good({"dry_run": True, "items": [item]}))
    result = script.play(jobs.apply([{"kind": "job", "name": "etl"}], dry_run=True))
    assert result.items[0].action is ApplyAction.CREATED
    body = b'{"documents":[{"kind":"job","name":"etl"}]}'
    assert script.asked == [Request("POST", "/apply", (("dry_run", "true"),), body)]


def test_jobs_are_fetched_page_by_page() -> None:
    script = Script(page(a_job("a"), a_job("b"), cursor="n+x/="), page(a_job("c")))
    script.play(jobs.jobs(namespace="default"))
    assert [job.name for job in script.emitted] == ["a", "b", "c"]
    assert [request.query for request in script.asked] == [
        (("namespace", "default"),),
        (("namespace", "default"), ("cursor", "n+x/=")),
    ]
    assert all(request.repeatable for request in script.asked)


def test_a_page_is_asked_for_when_it_is_reached() -> None:
    plan = jobs.jobs()
    next(plan)
    emitted = plan.send(page(a_job("a"), cursor="next"))
    assert emitted.item.name == "a"  # type: ignore[union-attr]  # anything else fails here, as it should


def test_job_by_name() -> None:
    script = Script(page(a_job("etl-2"), a_job("etl")))
    assert script.play(jobs.job("default", "etl")).name == "etl"
    assert script.asked[0].query == (("namespace", "default"), ("name", "etl"))


def test_no_such_job() -> None:
    with pytest.raises(NotFound, match="'default' has no job 'etl'"):
        Script(page(a_job("etl", namespace="other"))).play(jobs.job("default", "etl"))


def test_run_says_what_was_given() -> None:
    script = Script(good(a_task(), 201))
    at = datetime(2026, 7, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    plan = jobs.run(ID, params={"who": "me"}, priority=7, run_at=at, idempotency_key="k")
    assert script.play(plan) == a_task()
    request = script.asked[0]
    assert (request.method, request.path) == ("POST", f"/jobs/{ID}/run")
    sent = msgspec.json.decode(request.body, type=RunRequest)
    assert sent == RunRequest({"who": "me"}, 7, at, "k")


def test_run_is_repeated_only_with_an_idempotency_key() -> None:
    keyed = Script(REFUSED, good(a_task(), 201))
    assert keyed.play(jobs.run(ID, idempotency_key="k")).id == ID
    keyless = Script(REFUSED)
    with pytest.raises(ServerUnreachable):
        keyless.play(jobs.run(ID))
    assert len(keyless.asked) == 1


def test_run_many() -> None:
    script = Script(good({"items": [a_task(Task), a_task(Task)]}, 201))
    assert len(script.play(jobs.run_many(ID, [RunRequest({"n": 1}), RunRequest({"n": 2})]))) == 2
    assert script.asked[0].path == f"/jobs/{ID}/runs"
    assert [run["params"] for run in msgspec.json.decode(script.asked[0].body)["runs"]] == [
        {"n": 1},
        {"n": 2},
    ]
    assert not script.asked[0].repeatable


def test_tasks_by_every_filter() -> None:
    script = Script(page(a_task(Task)))
    script.play(
        tasks.tasks(
            namespace="a",
            job="b",
            status="failed",
            since=AT,
            until=AT,
            labels={"team": "data"},
            oldest_first=True,
            page_size=20,
        )
    )
    assert dict(script.asked[0].query) == {
        "namespace": "a",
        "job": "b",
        "status": "failed",
        "since": "2026-07-01T00:00:00Z",
        "until": "2026-07-01T00:00:00Z",
        "label": "team=data",
        "sort": "created_at",
        "limit": "20",
    }


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a zone"):
        Script().play(tasks.tasks(since=datetime(2026, 7, 1)))  # noqa: DTZ001  that is the point


@pytest.mark.parametrize(
    ("plan", "method", "path"),
    [
        (tasks.task(ID), "GET", f"/tasks/{ID}"),
        (tasks.cancel(ID), "POST", f"/tasks/{ID}/cancel"),
        (tasks.retry(ID), "POST", f"/tasks/{ID}/retry"),
    ],
)
def test_one_task(plan: Any, method: str, path: str) -> None:
    script = Script(good(a_task(status="running")))
    assert script.play(plan).status == "running"
    assert (script.asked[0].method, script.asked[0].path) == (method, path)
    assert script.asked[0].repeatable == (method == "GET")


def test_an_id_cannot_leave_its_place_in_the_path() -> None:
    script = Script(problem(404, detail="No such task."))
    with pytest.raises(NotFound):
        script.play(tasks.task("../jobs?x=1"))
    assert script.asked[0].path == "/tasks/..%2Fjobs%3Fx%3D1"


def test_logs_are_bytes() -> None:
    answer = good(0)
    script = Script(type(answer)(URL, 200, {}, b"\xff\x00raw"))
    assert script.play(task_instances.logs(ID, "stderr", offset=5)) == b"\xff\x00raw"
    assert dict(script.asked[0].query) == {"stream": "stderr", "offset": "5"}


def test_log_chunks_come_as_they_are_read() -> None:
    script = Script(streamed([b"a", b"b"]))
    script.play(task_instances.log_chunks(ID))
    assert script.emitted == [b"a", b"b"]


def test_a_log_that_breaks_off_is_no_complete_log() -> None:
    script = Script(streamed([b"a", NoAnswer(URL, "connection reset")]))
    with pytest.raises(ServerUnreachable, match="connection reset"):
        script.play(task_instances.log_chunks(ID))
    assert script.emitted == [b"a"]


def test_many_at_once_goes_on_until_there_is_no_more() -> None:
    one = {"dry_run": False, "changed": 2, "unchanged": 1, "sample": []}
    failure = {"id": ID, "code": "no", "message": "No."}
    script = Script(
        good({**one, "matched": 4, "failed": [failure], "next_cursor": "c", "cut": True}),
        good({**one, "matched": 3, "failed": [], "next_cursor": None, "cut": False}),
    )
    result = script.play(bulk.cancel_many(job="etl", labels={"team": "data"}))
    assert (result.matched, result.changed, result.unchanged, len(result.failed)) == (7, 4, 2, 1)
    assert (result.next_cursor, result.cut) == (None, False)
    bodies = [msgspec.json.decode(request.body) for request in script.asked]
    assert bodies == [
        {"filter": {"job": "etl", "labels": {"team": "data"}}},
        {"filter": {"job": "etl", "labels": {"team": "data"}}, "cursor": "c"},
    ]
    assert all(request.repeatable for request in script.asked)
