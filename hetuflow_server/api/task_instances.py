"""`/task-instances`: one attempt and its log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import MediaType, Request, Router, get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter
from litestar.response import ServerSentEvent, ServerSentEventMessage, Stream

from hetuflow_core.errors import Invalid
from hetuflow_core.resources import TaskInstance
from hetuflow_server.http.openapi import problems
from hetuflow_server.services.access import Principal
from hetuflow_server.services.log_ingest import STREAMS
from hetuflow_server.services.log_reading import LogEnd, LogPiece, LogReading, LogSilence

_PROBLEMS = problems(HTTPStatus.NOT_FOUND)


@get("/task-instances/{instance_id:uuid}", operation_id="get_task_instance", responses=_PROBLEMS)
async def get_task_instance(
    instance_id: FromPath[UUID],
    principal: NamedDependency[Principal],
    log_reading: NamedDependency[LogReading],
) -> TaskInstance:
    return await log_reading.instance(principal, instance_id)


@get(
    "/task-instances/{instance_id:uuid}/logs",
    media_type=MediaType.TEXT,
    operation_id="get_logs",
    responses=_PROBLEMS,
)
async def get_logs(
    instance_id: FromPath[UUID],
    principal: NamedDependency[Principal],
    log_reading: NamedDependency[LogReading],
    stream: Annotated[str | None, QueryParameter(description="stdout or stderr; all if not given.")] = None,
    offset: Annotated[int, QueryParameter(ge=0, description="First byte, of one stream.")] = 0,
) -> Stream:
    """The log as it came, byte for byte."""
    if stream is not None and stream not in STREAMS:
        raise Invalid(f"There is no log stream {stream}: use stdout or stderr.")
    if offset and stream is None:
        raise Invalid("An offset counts the bytes of one stream: name it with stream=.")
    await log_reading.instance(principal, instance_id)
    return Stream(
        log_reading.read(instance_id, stream, offset),
        media_type="text/plain; charset=utf-8",
    )


@get("/task-instances/{instance_id:uuid}/logs/stream", operation_id="follow_logs", responses=_PROBLEMS)
async def follow_logs(
    request: Request[Any, Any, Any],
    instance_id: FromPath[UUID],
    principal: NamedDependency[Principal],
    log_reading: NamedDependency[LogReading],
) -> ServerSentEvent:
    """The log as it grows: `log` events, then one `end` event. Last-Event-ID resumes behind an event."""
    await log_reading.instance(principal, instance_id)
    pieces = log_reading.follow(principal, instance_id, request.headers.get("last-event-id"))
    return ServerSentEvent(_events(pieces))


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
    route_handlers=[get_task_instance, get_logs, follow_logs],
    tags=["task instances"],
)
