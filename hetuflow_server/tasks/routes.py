"""`/tasks`."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.tasks import PriorityChange, Task, TaskDetail
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.filters import NEWEST_FIRST, Labels, Sort, first_id_at, is_oldest_first, labels_of
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.tasks.actions import TaskActions
from hetuflow_server.tasks.lists.service import Place, TaskLists
from hetuflow_server.tasks.lists.store import TaskFilter

_STATE_PROBLEMS = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@get("/tasks", operation_id="list_tasks", opt=needs(Permission.TASKS_READ), responses=problems())
async def list_tasks(
    context: NamedDependency[RequestContext],
    task_lists: NamedDependency[TaskLists],
    namespace: Annotated[str | None, QueryParameter()] = None,
    job: Annotated[str | None, QueryParameter(description="Name of the job.")] = None,
    label: Labels = None,
    status: Annotated[str | None, QueryParameter()] = None,
    since: Annotated[datetime | None, QueryParameter(description="Entered the system at or after.")] = None,
    until: Annotated[datetime | None, QueryParameter(description="Entered the system before.")] = None,
    sort: Sort = NEWEST_FIRST,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Task]:
    """List tasks. A page may be short and have a next one: only so many tasks are looked at for each."""
    wanted = TaskFilter(
        namespace=namespace,
        job=job,
        labels=labels_of(label),
        status=status,
        since=first_id_at("since", since),
        until=first_id_at("until", until),
    )
    page = await task_lists.page(
        context,
        wanted,
        limit=limit,
        cap=TOTAL_CAP,
        place=decode_cursor(cursor, Place),
        oldest_first=is_oldest_first(sort),
    )
    more = None if page.next is None else encode_cursor(page.next)
    return Page(page.tasks, more, page.total.count, page.total.capped)


@get(
    "/tasks/{task_id:uuid}",
    operation_id="get_task",
    opt=needs(Permission.TASKS_READ),
    responses=problems(HTTPStatus.NOT_FOUND),
)
async def get_task(
    task_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    task_actions: NamedDependency[TaskActions],
) -> TaskDetail:
    """A task with its instances, oldest first."""
    return await task_actions.task(context, task_id)


@post(
    "/tasks/{task_id:uuid}/cancel",
    status_code=200,
    operation_id="cancel_task",
    opt=needs(Permission.TASKS_RUN),
    responses=_STATE_PROBLEMS,
)
async def cancel_task(
    task_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    task_actions: NamedDependency[TaskActions],
) -> TaskDetail:
    """Cancel a task. One that waits ends at once; one that runs ends when its agent has killed it."""
    return await task_actions.cancel(context, task_id)


@post(
    "/tasks/{task_id:uuid}/retry",
    operation_id="retry_task",
    opt=needs(Permission.TASKS_RUN),
    responses=_STATE_PROBLEMS,
)
async def retry_task(
    task_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    task_actions: NamedDependency[TaskActions],
) -> TaskDetail:
    """Run a finished task again, as a new task with the same version and parameters."""
    return await task_actions.repeat(context, task_id)


@post(
    "/tasks/{task_id:uuid}/priority",
    status_code=200,
    operation_id="set_task_priority",
    opt=needs(Permission.TASKS_RUN),
    responses=_STATE_PROBLEMS,
)
async def set_task_priority(
    task_id: FromPath[UUID],
    data: JSONBody[PriorityChange],
    context: NamedDependency[RequestContext],
    task_actions: NamedDependency[TaskActions],
) -> TaskDetail:
    """Have a task that waits claimed sooner or later, from 0 to 1000, higher first."""
    return await task_actions.set_priority(context, task_id, data.priority)


tasks_router = Router(
    "/api/v1",
    route_handlers=[list_tasks, get_task, cancel_task, retry_task, set_task_priority],
    tags=["tasks"],
)
