"""The REST calls about jobs: apply, look, run, create and change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core.client.calls import get, pages, post, segment, send
from hetuflow_core.client.exchange import Plan, Request, Stream
from hetuflow_core.client.retry import answered
from hetuflow_core.client.task import TaskFunction
from hetuflow_core.errors import NotFound
from hetuflow_core.resources.apply import ApplyRequest, ApplyResult
from hetuflow_core.resources.jobs import Job, JobVersionSummary
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.tasks import RunRequest, RunsRequest, Task, TaskDetail, TaskList


def apply(
    documents: Sequence[Mapping[str, Any]],
    *,
    dry_run: bool = False,
    owner: str | None = None,
    prune: bool = False,
    take_over: bool = False,
) -> Plan[ApplyResult]:
    """Create and change what the documents (as in job files) say, all of it or nothing.

    With `dry_run` nothing is changed and the result says what would be, and what would follow. `owner` says
    whose files these are; `prune` removes what belongs to that owner and is in none of the documents.
    """
    request = ApplyRequest([dict(document) for document in documents], owner, prune, take_over)
    return (yield from post("/apply", request, ApplyResult, query={"dry_run": dry_run}))


def jobs(
    *,
    namespace: str | None = None,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    page_size: int | None = None,
) -> Stream[Job]:
    """The jobs of a namespace, or of all you may see; fetched page by page as they are iterated over."""
    wanted = [f"{key}={value}" for key, value in (labels or {}).items()]
    query = {"namespace": namespace, "name": name, "label": wanted, "limit": page_size}
    return (yield from pages("/jobs", query, Page[Job]))


def job(namespace: str, name: str) -> Plan[Job]:
    """The job of this name; `NotFound` if there is none."""
    page = yield from get("/jobs", Page[Job], query={"namespace": namespace, "name": name})
    for found in page.items:
        if (found.namespace, found.name) == (namespace, name):
            return found
    raise NotFound(
        f"Namespace {namespace!r} has no job {name!r}: `hetuflow job list -n {namespace}` shows what it has."
    )


def job_by_id(job_id: UUID | str) -> Plan[Job]:
    return (yield from get(f"/jobs/{segment(job_id)}", Job))


def job_versions(job_id: UUID | str, *, page_size: int | None = None) -> Stream[JobVersionSummary]:
    """What a job was, newest first; fetched page by page as they are iterated over."""
    query = {"limit": page_size}
    return (yield from pages(f"/jobs/{segment(job_id)}/versions", query, Page[JobVersionSummary]))


def run(
    job_id: UUID | str,
    *,
    params: Mapping[str, Any] | None = None,
    priority: int | None = None,
    run_at: datetime | None = None,
    idempotency_key: str | None = None,
    agent: str | None = None,
) -> Plan[TaskDetail]:
    """Start a task of the job. With an idempotency key a second call gives the task of the first.

    `agent` names the only agent that may take it; whichever suits if not given.
    """
    request = RunRequest(dict(params or {}), priority, run_at, idempotency_key, agent)
    path = f"/jobs/{segment(job_id)}/run"
    return (yield from post(path, request, TaskDetail, repeatable=idempotency_key is not None))


def run_many(job_id: UUID | str, runs: Sequence[RunRequest]) -> Plan[list[Task]]:
    """Start up to 1,000 tasks of the job at once, all of them or none, in the order of `runs`."""
    answer = yield from post(f"/jobs/{segment(job_id)}/runs", RunsRequest(list(runs)), TaskList)
    return answer.items


def enqueue(
    function: TaskFunction[..., Any],
    params: Mapping[str, Any] | None = None,
    *,
    namespace: str = "default",
    job: str | None = None,
    priority: int | None = None,
    run_at: datetime | None = None,
    idempotency_key: str | None = None,
    agent: str | None = None,
) -> Plan[TaskDetail]:
    """Have an agent run a function with `@task`, under a job of the function's own name, or another.

    `Invalid` if the parameters do not fit, before anything is asked. The job is made with the defaults if
    there is none yet; `apply` gives it timeout, retries and the like.
    """
    checked = function.check(params or {})
    name = job or function.path.replace(":", ".").replace("_", "-").lower()
    found = yield from _job_of(function, namespace, name)
    return (
        yield from run(
            found.id,
            params=checked,
            priority=priority,
            run_at=run_at,
            idempotency_key=idempotency_key,
            agent=agent,
        )
    )


def _job_of(function: TaskFunction[..., Any], namespace: str, name: str) -> Plan[Job]:
    try:
        return (yield from job(namespace, name))
    except NotFound:
        document = {"kind": "job", "namespace": namespace, "name": name}
        yield from apply([{**document, "run": {"python": {"function": function.path}}}])
        return (yield from job(namespace, name))


def create_job(document: Mapping[str, Any]) -> Plan[Job]:
    """Create a job from its document, as in job files; `Conflict` if there is one of that name."""
    return (yield from post("/jobs", document, Job))


def change_job(job_id: UUID | str, changes: Mapping[str, Any], *, etag: str | None = None) -> Plan[Job]:
    """Merge keys into a job; None takes one back to its default. With `etag`, `Stale` if it has changed."""
    headers = {} if etag is None else {"If-Match": etag}
    return (yield from send("PATCH", f"/jobs/{segment(job_id)}", Job, changes, headers=headers))


def job_etag(job_id: UUID | str) -> Plan[str]:
    """What stands for a job as it is now, for `change_job`."""
    answer = yield from answered(Request("GET", f"/jobs/{segment(job_id)}", repeatable=True))
    return answer.headers["etag"]
