"""`/task-instances/{id}/artifacts`: files that an attempt has left behind."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

from litestar import Router, get
from litestar.di import NamedDependency
from litestar.params import FromPath
from litestar.response import Stream

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.artifacts import ArtifactList
from hetuflow_server.artifacts.service import Artifacts
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.requests.context import RequestContext

_PROBLEMS = problems(HTTPStatus.NOT_FOUND)


@get(
    "/task-instances/{instance_id:uuid}/artifacts",
    operation_id="list_artifacts",
    opt=needs(Permission.ARTIFACTS_READ),
    responses=_PROBLEMS,
)
async def list_artifacts(
    instance_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    artifacts: NamedDependency[Artifacts],
) -> ArtifactList:
    """The files an attempt has left behind, by path."""
    return ArtifactList(await artifacts.list_artifacts(context, instance_id))


@get(
    "/task-instances/{instance_id:uuid}/artifacts/{path:path}",
    media_type="application/octet-stream",
    operation_id="get_artifact",
    opt=needs(Permission.ARTIFACTS_READ),
    responses=_PROBLEMS,
)
async def get_artifact(
    instance_id: FromPath[UUID],
    path: FromPath[Path],
    context: NamedDependency[RequestContext],
    artifacts: NamedDependency[Artifacts],
) -> Stream:
    """The bytes of one of them, by its path in the work directory."""
    found, content = await artifacts.open(context, instance_id, str(path).lstrip("/"))
    name = quote(path.name, safe="")
    return Stream(
        content,
        media_type="application/octet-stream",
        headers={
            "Content-Length": str(found.size),
            # Never shown by a browser as a page of ours.
            "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
            "X-Content-Type-Options": "nosniff",
            "ETag": f'"{found.sha256}"',
        },
    )


artifacts_router = Router("/api/v1", route_handlers=[list_artifacts, get_artifact], tags=["task instances"])
