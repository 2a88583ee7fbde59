"""Answers that say which state they show."""

from __future__ import annotations

from typing import Annotated, TypeVar

from litestar import Response
from litestar.params import HeaderParameter

from hetuflow_core.resources.jobs import Job
from hetuflow_core.resources.schedules import Calendar, Schedule
from hetuflow_server.http.entity_tags import etag_of

T = TypeVar("T", Job, Schedule, Calendar)

IfMatch = Annotated[
    str | None,
    HeaderParameter(
        name="If-Match", description="ETag of what was read; refused with 412 if it has changed."
    ),
]


def tagged(shown: T, *, status_code: int | None = None) -> Response[T]:
    return Response(shown, headers={"ETag": etag_of(shown)}, status_code=status_code)
