"""The REST calls about attempts of tasks and their logs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core.client.calls import chunks, get, pages, post, query_of, segment
from hetuflow_core.client.exchange import Plan, Request, Stream
from hetuflow_core.client.retry import answered
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.tasks import ListedInstance, TaskInstance


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
    return (yield from chunks(_logs_request(instance_id, stream, wanted)))


def _logs_request(instance_id: UUID | str, stream: str | None, wanted: Mapping[str, Any]) -> Request:
    query = query_of({"stream": stream, **wanted})
    headers = {"Accept": "text/plain"}
    path = f"/task-instances/{segment(instance_id)}/logs"
    return Request("GET", path, query, headers=headers, repeatable=True)
