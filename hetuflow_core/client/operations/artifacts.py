"""The REST calls about files that attempts have left behind."""

from __future__ import annotations

from urllib.parse import quote
from uuid import UUID

from hetuflow_core.client.calls import chunks, get, segment
from hetuflow_core.client.exchange import Plan, Request, Stream
from hetuflow_core.resources.artifacts import Artifact, ArtifactList


def artifacts(instance_id: UUID | str) -> Plan[list[Artifact]]:
    """The files an instance has left behind."""
    answer = yield from get(f"/task-instances/{segment(instance_id)}/artifacts", ArtifactList)
    return answer.items


def artifact_chunks(instance_id: UUID | str, path: str) -> Stream[bytes]:
    """The bytes of one of them, in pieces as they come in."""
    where = f"/task-instances/{segment(instance_id)}/artifacts/{quote(path)}"
    return (yield from chunks(Request("GET", where, headers={"Accept": "*/*"}, repeatable=True)))
