"""`/tasks`."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from hetuflow_core import ids
from hetuflow_core.errors import Invalid
from hetuflow_core.permissions import Permission
from hetuflow_core.resources import Page, Task, TaskDetail
from hetuflow_core.states import TaskStatus
from hetuflow_server.api.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.http.guarding import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.services.principals import Principal
from hetuflow_server.services.task_actions import TaskActions
from hetuflow_server.store.tasks import TaskFilter

_STATUSES = frozenset(TaskStatus) | {"running"}
_STATE_PROBLEMS = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@get("/tasks", operation_id="list_tasks", opt=needs(Permission.TASKS_READ), responses=problems())
async def list_tasks(
    principal: NamedDependency[Principal],
    task_actions: NamedDependency[TaskActions],
    namespace: Annotated[str | None, QueryParameter()] = None,
    job: Annotated[str | None, QueryParameter(description="Name of the job.")] = None,
    status: Annotated[str | None, QueryParameter()] = None,
    since: Annotated[datetime | None, QueryParameter(description="Entered the system at or after.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Task]:
    """List tasks, newest first."""
    if status is not None and status not in _STATUSES:
        raise Invalid(f"There is no task status {status}: use one of {', '.join(sorted(_STATUSES))}.")
    wanted = TaskFilter(
        namespace=namespace,
        job=job,
        status=status,
        since=_first_id(since),
        before=decode_cursor(cursor, UUID),
    )
    tasks, total = await task_actions.list_tasks(principal, wanted, limit=limit, cap=TOTAL_CAP)
    more = encode_cursor(tasks[limit - 1].id) if len(tasks) > limit else None
    return Page(tasks[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@get(
    "/tasks/{task_id:uuid}",
    operation_id="get_task",
    opt=needs(Permission.TASKS_READ),
    responses=problems(HTTPStatus.NOT_FOUND),
)
async def get_task(
    task_id: FromPath[UUID],
    principal: NamedDependency[Principal],
    task_actions: NamedDependency[TaskActions],
) -> TaskDetail:
    """A task with its instances, oldest first."""
    return await task_actions.task(principal, task_id)


@post(
    "/tasks/{task_id:uuid}/cancel",
    status_code=200,
    operation_id="cancel_task",
    opt=needs(Permission.TASKS_RUN),
    responses=_STATE_PROBLEMS,
)
async def cancel_task(
    task_id: FromPath[UUID],
    principal: NamedDependency[Principal],
    task_actions: NamedDependency[TaskActions],
) -> TaskDetail:
    """Cancel a task. One that waits ends at once; one that runs ends when its agent has killed it."""
    return await task_actions.cancel(principal, task_id)


@post(
    "/tasks/{task_id:uuid}/retry",
    operation_id="retry_task",
    opt=needs(Permission.TASKS_RUN),
    responses=_STATE_PROBLEMS,
)
async def retry_task(
    task_id: FromPath[UUID],
    principal: NamedDependency[Principal],
    task_actions: NamedDependency[TaskActions],
) -> TaskDetail:
    """Run a finished task again, as a new task with the same version and parameters."""
    return await task_actions.repeat(principal, task_id)


def _first_id(since: datetime | None) -> UUID | None:
    if since is None:
        return None
    try:
        return ids.first_id_at(since)
    except (ValueError, OverflowError) as error:
        raise Invalid(f"since: {error}; write it as RFC 3339 with an offset.") from error


tasks_router = Router(
    "/api/v1", route_handlers=[list_tasks, get_task, cancel_task, retry_task], tags=["tasks"]
)
