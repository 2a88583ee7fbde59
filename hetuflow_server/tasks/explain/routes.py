"""`/tasks/{id}/explain`."""

from __future__ import annotations

from http import HTTPStatus
from uuid import UUID

from litestar import Router, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.explanations import Explanation
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.tasks.explain.service import TaskExplanations


@get(
    "/tasks/{task_id:uuid}/explain",
    operation_id="explain_task",
    opt=needs(Permission.TASKS_READ),
    responses=problems(HTTPStatus.NOT_FOUND),
)
async def explain_task(
    task_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    task_explanations: NamedDependency[TaskExplanations],
) -> Explanation:
    """Why a task is where it is: what stands in its way, what each agent is refused for, what would help."""
    return await task_explanations.explain(context, task_id)


explanations_router = Router("/api/v1", route_handlers=[explain_task], tags=["tasks"])
