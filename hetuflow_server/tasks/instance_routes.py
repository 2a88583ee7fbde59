"""`/task-instances`: one attempt and its log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import MediaType, Request, Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter
from litestar.response import ServerSentEvent, ServerSentEventMessage, Stream

from hetuflow_core.access.permissions import Permission
from hetuflow_core.errors import Denied, Invalid, NotFound
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.tasks import ListedInstance, TaskInstance
from hetuflow_core.states import InstanceStatus
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.credentials import bearer
from hetuflow_server.http.filters import (
    NEWEST_FIRST,
    Labels,
    Sort,
    first_id_at,
    is_oldest_first,
    labels_of,
    one_of,
)
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.identity.access import Access
from hetuflow_server.logs.lines import MOST_TAIL_LINES
from hetuflow_server.logs.reading import LogEnd, LogPiece, LogQuery, LogReading, LogSilence
from hetuflow_server.logs.streams import STREAMS
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.tasks.actions import TaskActions
from hetuflow_server.tasks.lists.service import Place, TaskLists
from hetuflow_server.tasks.lists.store import TaskFilter

_PROBLEMS = problems(HTTPStatus.NOT_FOUND)


@get(
    "/task-instances",
    operation_id="list_task_instances",
    opt=needs(Permission.TASKS_READ),
    responses=problems(),
)
async def list_task_instances(
    context: NamedDependency[RequestContext],
    task_lists: NamedDependency[TaskLists],
    namespace: Annotated[str | None, QueryParameter()] = None,
    job: Annotated[str | None, QueryParameter(description="Name of the job.")] = None,
    label: Labels = None,
    agent: Annotated[str | None, QueryParameter(description="Name of the agent that has or had it.")] = None,
    status: Annotated[str | None, QueryParameter()] = None,
    since: Annotated[datetime | None, QueryParameter(description="Of tasks that came at or after.")] = None,
    until: Annotated[datetime | None, QueryParameter(description="Of tasks that came before.")] = None,
    sort: Sort = NEWEST_FIRST,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[ListedInstance]:
    """List attempts, those that wait or run and those that have ended. A short page may have a next one."""
    if status is not None:
        one_of("status", status, sorted(InstanceStatus))
    wanted = TaskFilter(
        namespace=namespace,
        job=job,
        labels=labels_of(label),
        status=status,
        since=first_id_at("since", since),
        until=first_id_at("until", until),
    )
    page = await task_lists.instances(
        context,
        wanted,
        agent=agent,
        limit=limit,
        cap=TOTAL_CAP,
        place=decode_cursor(cursor, Place),
        oldest_first=is_oldest_first(sort),
    )
    more = None if page.next is None else encode_cursor(page.next)
    return Page(page.instances, more, page.total.count, page.total.capped)


@post(
    "/task-instances/{instance_id:uuid}/terminate",
    status_code=202,
    operation_id="terminate_task_instance",
    opt=needs(Permission.TASKS_RUN),
    responses=problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
)
async def terminate_task_instance(
    instance_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    task_actions: NamedDependency[TaskActions],
) -> TaskInstance:
    """End one attempt, which has then failed: its task is tried again if the job's `retry` allows it."""
    return await task_actions.terminate(context, instance_id)


@get(
    "/task-instances/{instance_id:uuid}",
    operation_id="get_task_instance",
    opt=needs(Permission.TASKS_READ),
    responses=_PROBLEMS,
)
async def get_task_instance(
    instance_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    task_actions: NamedDependency[TaskActions],
) -> TaskInstance:
    """One attempt of a task."""
    return await task_actions.instance(context, instance_id)


@get(
    "/task-instances/{instance_id:uuid}/logs",
    media_type=MediaType.TEXT,
    operation_id="get_logs",
    opt=needs(Permission.LOGS_READ),
    responses=_PROBLEMS,
)
async def get_logs(
    instance_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    task_actions: NamedDependency[TaskActions],
    log_reading: NamedDependency[LogReading],
    stream: Annotated[str | None, QueryParameter(description="stdout or stderr; all if not given.")] = None,
    offset: Annotated[int, QueryParameter(ge=0, description="First byte, of one stream.")] = 0,
    length: Annotated[int | None, QueryParameter(ge=1, description="Most bytes, of one stream.")] = None,
    tail: Annotated[
        int | None, QueryParameter(ge=1, le=MOST_TAIL_LINES, description="Only the last lines.")
    ] = None,
    since: Annotated[datetime | None, QueryParameter(description="Only what arrived since then.")] = None,
    q: Annotated[
        str | None,
        QueryParameter(min_length=1, max_length=1000, description="Only lines that hold this text."),
    ] = None,
) -> Stream:
    """The log as it came, byte for byte, or a part of it."""
    wanted = LogQuery(stream, offset, length, tail, since, q)
    _check(wanted)
    await task_actions.instance(context, instance_id)
    return Stream(log_reading.read(instance_id, wanted), media_type="text/plain; charset=utf-8")


def _check(wanted: LogQuery) -> None:
    if wanted.stream is not None and wanted.stream not in STREAMS:
        raise Invalid(f"There is no log stream {wanted.stream}: use stdout or stderr.")
    if (wanted.offset or wanted.length) and wanted.stream is None:
        raise Invalid("An offset and a length count the bytes of one stream: name it with stream=.")
    if wanted.since is not None and wanted.since.tzinfo is None:
        raise Invalid("since needs an offset, as in 2026-12-31T23:59:00+01:00.")
    ranged = bool(wanted.offset or wanted.length)
    if sum([ranged, wanted.tail is not None, wanted.search is not None]) > 1:
        raise Invalid("A range, tail and q exclude each other: ask for one of them.")
    if wanted.tail is not None and wanted.since is not None:
        raise Invalid("tail and since exclude each other: ask for one of them.")


@get(
    "/task-instances/{instance_id:uuid}/logs/stream",
    media_type="text/event-stream",
    operation_id="follow_logs",
    opt=needs(Permission.LOGS_READ),
    responses=_PROBLEMS,
)
async def follow_logs(
    request: Request[Any, Any, Any],
    instance_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    task_actions: NamedDependency[TaskActions],
    log_reading: NamedDependency[LogReading],
    access: NamedDependency[Access],
    stream: Annotated[str | None, QueryParameter(description="stdout or stderr; all if not given.")] = None,
    tail: Annotated[
        int | None, QueryParameter(ge=1, le=MOST_TAIL_LINES, description="From the last lines on.")
    ] = None,
    since: Annotated[datetime | None, QueryParameter(description="From what arrived since then on.")] = None,
) -> ServerSentEvent:
    """The log as it grows: `log` events, then one `end` event. Last-Event-ID resumes behind an event."""
    wanted = LogQuery(stream, tail=tail, since=since)
    _check(wanted)
    await task_actions.instance(context, instance_id)
    pieces = log_reading.follow(
        instance_id,
        request.headers.get("last-event-id"),
        wanted,
        lambda: task_actions.instance(context, instance_id),
    )

    async def let_in() -> bool:
        """Whether who follows may still do so: a key that was revoked shows nothing more."""
        try:
            rights = await access.rights_now(bearer(request))
            if rights != context.principal.rights:
                await task_actions.instance(context.with_rights(rights), instance_id)
        except (Denied, NotFound):
            return False
        return True

    return ServerSentEvent(_events(_while_let_in(pieces, let_in)))


async def _while_let_in(
    pieces: AsyncIterator[LogPiece | LogEnd | LogSilence], let_in: Callable[[], Awaitable[bool]]
) -> AsyncIterator[LogPiece | LogEnd | LogSilence]:
    async for piece in pieces:
        if not await let_in():
            return
        yield piece


async def _events(
    pieces: AsyncIterator[LogPiece | LogEnd | LogSilence],
) -> AsyncIterator[ServerSentEventMessage]:
    async for piece in pieces:
        match piece:
            case LogPiece():
                data = {"stream": piece.stream, "offset": piece.offset, "text": piece.text}
                yield ServerSentEventMessage(data=_json(data), event="log", id=piece.position)
            case LogEnd():
                yield ServerSentEventMessage(
                    data=_json({"status": piece.status, "exit_code": piece.exit_code}),
                    event="end",
                )
            case LogSilence():
                yield ServerSentEventMessage(comment="still here")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


task_instances_router = Router(
    "/api/v1",
    route_handlers=[list_task_instances, get_task_instance, terminate_task_instance, get_logs, follow_logs],
    tags=["task instances"],
)
