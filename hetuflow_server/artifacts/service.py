"""Artifacts: files that tasks leave behind, brought in by agents chunk by chunk and given out again."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from hashlib import sha256
from uuid import UUID

from hetuflow_core import ids, messages as m
from hetuflow_core.artifact_paths import path_fault
from hetuflow_core.errors import Conflict, Invalid, NotFound
from hetuflow_core.resources.artifacts import Artifact
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.agents.sessions import AgentSessions
from hetuflow_server.artifacts import store
from hetuflow_server.artifacts.store import ArtifactClaim, StoredArtifact
from hetuflow_server.identity.access import AgentCredential
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.queue import tasks_store as task_store
from hetuflow_server.requests.context import RequestContext

MOST_CHUNK_BYTES = 1024 * 1024
MOST_FILES = 1_000
_READ_AHEAD = 4
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Artifacts:
    def __init__(
        self, database: Database, sessions: AgentSessions, clock: Clock, *, file_cap: int, cap: int
    ) -> None:
        """`file_cap` and `cap`: bytes of one file, and of all files of an instance."""
        self._database = database
        self._sessions = sessions
        self._clock = clock
        self._file_cap = file_cap
        self._cap = cap

    async def store(self, credential: AgentCredential, asked: m.StoreArtifact) -> m.ArtifactStored:
        """Append a chunk where the artifact ends; said twice it is stored once."""
        _check(asked)
        await self._sessions.current(credential, asked.session_id)
        async with self._database.transaction() as connection:
            claim = await _claim(connection, asked.instance_id, asked.token)
            if claim is None:
                outcome, length = m.ArtifactOutcome.REFUSED, 0
            elif await self._too_large(connection, asked):
                outcome, length = m.ArtifactOutcome.TOO_LARGE, 0
            else:
                outcome, length = await self._append(connection, claim, asked)
        return m.ArtifactStored(ids.milliseconds(self._clock.now()), outcome, length)

    async def fetch(self, credential: AgentCredential, asked: m.FetchArtifact) -> m.ArtifactFetched:
        """Give an agent a piece of an artifact of an earlier task, for work it holds."""
        await self._sessions.current(credential, asked.session_id)
        async with self._database.transaction() as connection:
            claim = await _claim(connection, asked.instance_id, asked.token)
            if claim is None:
                raise Conflict("This instance is not the agent's.", code="artifact.stale")
            source = asked.source_instance_id or await _source(connection, claim, asked)
            found = None if source is None else await store.find(connection, source, asked.path)
            if found is None or not await _same_namespace(connection, found.instance_id, claim):
                raise NotFound(
                    f"No succeeded task has left the artifact {asked.path}.", code="artifact.not_found"
                )
            pieces = await store.chunks(connection, found.instance_id, found.path, asked.offset, 1)
        data = pieces[0][1] if pieces and pieces[0][0] == asked.offset else b""
        now = ids.milliseconds(self._clock.now())
        return m.ArtifactFetched(now, found.instance_id, found.size, found.sha256, data)

    async def list_artifacts(self, context: RequestContext, instance_id: UUID) -> list[Artifact]:
        async with self._database.transaction(context) as connection:
            await _visible(connection, context, instance_id)
            found = await store.list_artifacts(connection, instance_id)
        return [Artifact(one.path, one.size, one.sha256, one.updated_at) for one in found]

    async def open(
        self, context: RequestContext, instance_id: UUID, path: str
    ) -> tuple[StoredArtifact, AsyncIterator[bytes]]:
        """Return an artifact and its bytes, piece by piece."""
        async with self._database.transaction(context) as connection:
            await _visible(connection, context, instance_id)
            found = await store.find(connection, instance_id, path)
        if found is None:
            raise NotFound("There is no such artifact.", code="artifact.not_found")
        return found, self._bytes(found)

    async def _bytes(self, found: StoredArtifact) -> AsyncIterator[bytes]:
        offset = 0
        while offset < found.size:
            async with self._database.transaction() as connection:
                pieces = await store.chunks(connection, found.instance_id, found.path, offset, _READ_AHEAD)
            if not pieces:
                return  # it has expired meanwhile
            for start, data in pieces:
                offset = start + len(data)
                yield data

    async def _too_large(self, connection: Connection, asked: m.StoreArtifact) -> bool:
        if asked.size > self._file_cap:
            return True
        files, size = await store.totals_beside(connection, asked.instance_id, asked.path)
        return files >= MOST_FILES or size + asked.size > self._cap

    async def _append(
        self, connection: Connection, claim: ArtifactClaim, asked: m.StoreArtifact
    ) -> tuple[m.ArtifactOutcome, int]:
        found = await store.lock(connection, claim, asked.instance_id, asked.path, asked.size, asked.sha256)
        if found.stored != asked.offset:
            return m.ArtifactOutcome.OFFSET, found.stored
        if asked.data:
            await store.append(connection, found, asked.data)
        stored = found.stored + len(asked.data)
        if stored == asked.size and asked.data and await _sum_of(connection, found) != asked.sha256:
            await store.restart(connection, found.instance_id, found.path, asked.size, asked.sha256)
            return m.ArtifactOutcome.OFFSET, 0
        return m.ArtifactOutcome.STORED, stored


async def _claim(connection: Connection, instance_id: UUID, token: UUID) -> ArtifactClaim | None:
    claim = (await store.claims_of(connection, [instance_id])).get(instance_id)
    return claim if claim is not None and claim.token == token else None


async def _source(connection: Connection, claim: ArtifactClaim, asked: m.FetchArtifact) -> UUID | None:
    if asked.task is not None:
        return await store.instance_of_task(connection, claim.namespace_id, asked.task, asked.path)
    return await store.instance_of_job(connection, claim.namespace_id, asked.job or "", asked.path)


async def _same_namespace(connection: Connection, source: UUID, claim: ArtifactClaim) -> bool:
    origin = (await store.claims_of(connection, [source])).get(source)
    return origin is not None and origin.namespace_id == claim.namespace_id


async def _sum_of(connection: Connection, found: StoredArtifact) -> str:
    """Return the sum of what is stored: what is given out again is what the agent has read."""
    total = sha256()
    offset = 0
    while pieces := await store.chunks(connection, found.instance_id, found.path, offset, _READ_AHEAD):
        for start, data in pieces:
            total.update(data)
            offset = start + len(data)
    return total.hexdigest()


async def _visible(connection: Connection, context: RequestContext, instance_id: UUID) -> None:
    found = await task_store.instance_by_id(connection, instance_id)
    if found is None or not context.sees(found[1]):
        raise NotFound("There is no such task instance.", code="task_instance.not_found")


def _check(asked: m.StoreArtifact) -> None:
    fault = path_fault(asked.path)
    if fault is not None:
        raise Invalid(f"The path of an artifact {fault}")
    if _SHA256.fullmatch(asked.sha256) is None:
        raise Invalid("The sum of an artifact is its SHA-256 in hexadecimal digits.")
    if asked.size < 0 or not 0 <= asked.offset <= asked.size or len(asked.data) > MOST_CHUNK_BYTES:
        raise Invalid(f"A chunk of an artifact has up to {MOST_CHUNK_BYTES} bytes within its size.")
    if asked.offset + len(asked.data) > asked.size:
        raise Invalid("A chunk of an artifact reaches beyond its size.")
