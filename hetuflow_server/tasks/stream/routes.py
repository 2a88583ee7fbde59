"""`/namespaces/{name}/tasks/stream`: what becomes of the tasks of a namespace, as it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Router, get
from litestar.di import NamedDependency
from litestar.params import FromPath
from litestar.response import ServerSentEvent, ServerSentEventMessage

from hetuflow_core.access.permissions import Permission
from hetuflow_core.errors import Denied, NotFound
from hetuflow_core.resources.tasks import TaskChange
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.credentials import bearer
from hetuflow_server.http.openapi import problems
from hetuflow_server.identity.access import Access
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.tasks.stream.service import Changed, Opened, Silence, TaskStream, Told


@get(
    "/namespaces/{name:str}/tasks/stream",
    operation_id="follow_tasks",
    opt=needs(Permission.TASKS_READ),
    responses=problems(HTTPStatus.NOT_FOUND),
)
async def follow_tasks(
    request: Request[Any, Any, Any],
    name: FromPath[str],
    context: NamedDependency[RequestContext],
    task_stream: NamedDependency[TaskStream],
    access: NamedDependency[Access],
) -> ServerSentEvent:
    """What becomes of tasks: `open`, then `task` events in the order of their commits.

    Last-Event-ID resumes behind an event for up to nine minutes; after that, `open` says to start over.
    """
    told = await task_stream.follow(context, name, request.headers.get("last-event-id"))

    async def let_in() -> bool:
        """Whether who follows may still do so: a key that was revoked shows nothing more."""
        try:
            rights = await access.rights_now(bearer(request))
            if rights != context.principal.rights:
                context.with_rights(rights).require_namespace(name)
        except (Denied, NotFound):
            return False
        return True

    return ServerSentEvent(_messages(told, let_in))


async def _messages(
    told: AsyncIterator[Told], let_in: Callable[[], Awaitable[bool]]
) -> AsyncIterator[ServerSentEventMessage]:
    async for one in told:
        if not await let_in():
            return
        position = str(one.position)
        match one:
            case Opened():
                data = msgspec.json.encode({"start_over": one.start_over}).decode()
                yield ServerSentEventMessage(data=data, event="open", id=position)
            case Changed():
                yield ServerSentEventMessage(data=_json(one), event="task", id=position)
            case Silence():
                yield ServerSentEventMessage(data=None, comment="still here", id=position)


def _json(change: Changed) -> str:
    shown = TaskChange(
        task_id=change.task_id,
        instance_id=change.instance_id,
        job=change.job,
        status=change.status,
        reason=change.reason,
        at=change.at,
        fire_at=change.fire_at,
        finished_at=change.finished_at,
    )
    return msgspec.json.encode(shown).decode()


task_stream_router = Router("/api/v1", route_handlers=[follow_tasks], tags=["tasks"])
