"""The REST calls, each written once: what is asked, and what the answer means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import UUID

from hetuflow_core.client.calls import get, pages, post, query_of, segment, send
from hetuflow_core.client.exchange import (
    Answer,
    Emit,
    NoAnswer,
    Open,
    Plan,
    Read,
    Request,
    Stream,
)
from hetuflow_core.client.problems import error_of
from hetuflow_core.client.retry import answered
from hetuflow_core.client.task import TaskFunction
from hetuflow_core.errors import NotFound
from hetuflow_core.resources.apply import ApplyRequest, ApplyResult
from hetuflow_core.resources.artifacts import Artifact, ArtifactList
from hetuflow_core.resources.cluster import ServerInfo
from hetuflow_core.resources.jobs import Job
from hetuflow_core.resources.limits import Limit, LimitChange, LimitRequest
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.status import QueueSummary
from hetuflow_core.resources.tasks import (
    ListedInstance,
    PriorityChange,
    RunRequest,
    RunsRequest,
    Task,
    TaskDetail,
    TaskInstance,
    TaskList,
)

T = TypeVar("T")


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


def run_many(job_id: UUID | str, runs: Sequence[RunRequest]) -> Plan[list[Task]]:
    """Start up to 1,000 tasks of the job at once, all of them or none, in the order of `runs`."""
    answer = yield from post(f"/jobs/{segment(job_id)}/runs", RunsRequest(list(runs)), TaskList)
    return answer.items


def task(task_id: UUID | str) -> Plan[TaskDetail]:
    return (yield from get(f"/tasks/{segment(task_id)}", TaskDetail))


def tasks(
    *,
    namespace: str | None = None,
    job: str | None = None,
    status: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    labels: Mapping[str, str] | None = None,
    oldest_first: bool = False,
    page_size: int | None = None,
) -> Stream[Task]:
    """Tasks, newest first; fetched page by page as they are iterated over. `labels` are those of the job."""
    query = {
        "namespace": namespace,
        "job": job,
        "status": status,
        "since": since,
        "until": until,
        "label": [f"{key}={value}" for key, value in (labels or {}).items()],
        "sort": "created_at" if oldest_first else None,
        "limit": page_size,
    }
    return (yield from pages("/tasks", query, Page[Task]))


def cancel(task_id: UUID | str) -> Plan[TaskDetail]:
    """Cancel the task; what runs is told to stop, so its status may be `running` for a little longer."""
    return (yield from post(f"/tasks/{segment(task_id)}/cancel", None, TaskDetail))


def set_priority(task_id: UUID | str, priority: int) -> Plan[TaskDetail]:
    """Have a task that waits claimed sooner or later: from 0 to 1000, higher first."""
    path = f"/tasks/{segment(task_id)}/priority"
    return (yield from post(path, PriorityChange(priority), TaskDetail, repeatable=True))


def task_instances(
    *,
    namespace: str | None = None,
    job: str | None = None,
    agent: str | None = None,
    status: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    labels: Mapping[str, str] | None = None,
    oldest_first: bool = False,
    page_size: int | None = None,
) -> Stream[ListedInstance]:
    """Attempts, those that wait or run and those that have ended, of the newest tasks first."""
    query = {
        "namespace": namespace,
        "job": job,
        "agent": agent,
        "status": status,
        "since": since,
        "until": until,
        "label": [f"{key}={value}" for key, value in (labels or {}).items()],
        "sort": "created_at" if oldest_first else None,
        "limit": page_size,
    }
    return (yield from pages("/task-instances", query, Page[ListedInstance]))


def task_instance(instance_id: UUID | str) -> Plan[TaskInstance]:
    return (yield from get(f"/task-instances/{segment(instance_id)}", TaskInstance))


def terminate(instance_id: UUID | str) -> Plan[TaskInstance]:
    """End one attempt, which has then failed: its task is tried again if the job's `retry` allows it."""
    path = f"/task-instances/{segment(instance_id)}/terminate"
    return (yield from post(path, None, TaskInstance, repeatable=True))


def retry(task_id: UUID | str) -> Plan[TaskDetail]:
    """Run a finished task once more: the answer is a new task with the same job version and params."""
    return (yield from post(f"/tasks/{segment(task_id)}/retry", None, TaskDetail))


def logs(
    instance_id: UUID | str,
    stream: str | None = None,
    *,
    offset: int = 0,
    length: int | None = None,
    tail: int | None = None,
    since: datetime | None = None,
    search: str | None = None,
) -> Plan[bytes]:
    """What the instance has written so far, byte for byte; both streams as they arrived if none is named.

    Of one stream a range of bytes can be asked for, of any log its last lines (`tail`), what arrived `since`
    a time, or the lines that hold a text (`search`).
    """
    wanted = {"offset": offset or None, "length": length, "tail": tail, "since": since, "q": search}
    answer = yield from answered(_logs_request(instance_id, stream, wanted))
    return answer.body


def log_chunks(
    instance_id: UUID | str,
    stream: str | None = None,
    *,
    offset: int = 0,
    length: int | None = None,
    tail: int | None = None,
    since: datetime | None = None,
    search: str | None = None,
) -> Stream[bytes]:
    """The same as `logs`, in pieces as they come in: for logs that are better not held in memory."""
    wanted = {"offset": offset or None, "length": length, "tail": tail, "since": since, "q": search}
    reply: Answer | NoAnswer = yield Open(_logs_request(instance_id, stream, wanted))
    if isinstance(reply, NoAnswer) or not reply.good:
        raise error_of(reply)
    while isinstance(chunk := (yield Read(reply)), bytes):
        yield Emit(chunk)
    if isinstance(chunk, NoAnswer):
        raise error_of(chunk)


def limits(*, namespace: str | None = None, page_size: int | None = None) -> Stream[Limit]:
    """The named limits of a namespace, or of all you may see, with how much of each is in use."""
    query = {"namespace": namespace, "limit": page_size}
    return (yield from pages("/limits", query, Page[Limit]))


def limit(namespace: str, name: str) -> Plan[Limit]:
    """The limit of this name, such as tool:claude; `NotFound` if there is none."""
    return (yield from get(_limit_path(namespace, name), Limit))


def create_limit(namespace: str, name: str, most: int) -> Plan[Limit]:
    """Define a limit that jobs of the namespace may name; `Conflict` if there is one already."""
    return (yield from post("/limits", LimitRequest(name, most, namespace), Limit))


def set_limit(namespace: str, name: str, most: int) -> Plan[Limit]:
    """Raise or lower a limit; nothing that runs is ended by it."""
    path = _limit_path(namespace, name)
    return (yield from send("PATCH", path, Limit, LimitChange(most), repeatable=True))


def delete_limit(namespace: str, name: str) -> Plan[None]:
    """Delete a limit; `Conflict` while a job names it or unfinished work counts against it."""
    yield from answered(Request("DELETE", _limit_path(namespace, name)))


def artifacts(instance_id: UUID | str) -> Plan[list[Artifact]]:
    """The files an instance has left behind."""
    answer = yield from get(f"/task-instances/{segment(instance_id)}/artifacts", ArtifactList)
    return answer.items


def artifact_chunks(instance_id: UUID | str, path: str) -> Stream[bytes]:
    """The bytes of one of them, in pieces as they come in."""
    where = f"/task-instances/{segment(instance_id)}/artifacts/{quote(path)}"
    reply: Answer | NoAnswer = yield Open(Request("GET", where, headers={"Accept": "*/*"}, repeatable=True))
    if isinstance(reply, NoAnswer) or not reply.good:
        raise error_of(reply)
    while isinstance(chunk := (yield Read(reply)), bytes):
        yield Emit(chunk)
    if isinstance(chunk, NoAnswer):
        raise error_of(chunk)


def info() -> Plan[ServerInfo]:
    return (yield from get("/system/info", ServerInfo))


def status(*, late_after: float | None = None, most: int | None = None) -> Plan[QueueSummary]:
    """What is queued and running right now, who runs it, what fails, what is late and what comes next.

    Work is late that has been due for `late_after` seconds (60); lists have up to `most` (10) items.
    """
    query = {"late_after": None if late_after is None else int(late_after), "most": most}
    return (yield from get("/system/status", QueueSummary, query=query))


def _limit_path(namespace: str, name: str) -> str:
    return f"/limits/{segment(namespace)}/{quote(name)}"


def _logs_request(instance_id: UUID | str, stream: str | None, wanted: Mapping[str, Any]) -> Request:
    query = query_of({"stream": stream, **wanted})
    headers = {"Accept": "text/plain"}
    path = f"/task-instances/{segment(instance_id)}/logs"
    return Request("GET", path, query, headers=headers, repeatable=True)
