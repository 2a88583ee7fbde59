"""The REST calls about tasks: look, cancel, change the priority, run again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from hetuflow_core.client.calls import get, pages, post, segment
from hetuflow_core.client.exchange import Plan, Stream
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.tasks import PriorityChange, Task, TaskDetail


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


def retry(task_id: UUID | str) -> Plan[TaskDetail]:
    """Run a finished task once more: the answer is a new task with the same job version and params."""
    return (yield from post(f"/tasks/{segment(task_id)}/retry", None, TaskDetail))
