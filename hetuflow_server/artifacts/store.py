"""Files that tasks leave behind: stored chunk by chunk, read back in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from hetuflow_server.postgres.arrays import Uuids
from hetuflow_server.postgres.connection import Connection


@dataclass(frozen=True, slots=True)
class ArtifactClaim:
    """The holder of an instance's claim, present or last."""

    token: UUID
    task_id: UUID
    namespace_id: int


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    instance_id: UUID
    path: str
    size: int
    sha256: str
    stored: int
    updated_at: datetime

    @property
    def complete(self) -> bool:
        return self.stored == self.size


_CLAIMS = """
SELECT id, token, task_id, namespace_id FROM sched_task_instance
WHERE id = ANY(%(ids)s::uuid[]) AND token IS NOT NULL
UNION ALL
SELECT id, token, task_id, namespace_id FROM sched_task_instance_history
WHERE id = ANY(%(ids)s::uuid[]) AND token IS NOT NULL"""

# Another size or sum is another file: what was stored of the former one goes first.
_BEGIN = """
INSERT INTO sched_artifact (instance_id, path, task_id, namespace_id, size, sha256)
VALUES (%(instance_id)s, %(path)s, %(task_id)s, %(namespace_id)s, %(size)s, %(sha256)s)
ON CONFLICT (instance_id, path) DO NOTHING"""

_COLUMNS = "instance_id, path, size, sha256, stored, updated_at"

_LOCK = f"""
SELECT {_COLUMNS} FROM sched_artifact
WHERE instance_id = %(instance_id)s AND path = %(path)s FOR UPDATE"""

_RESTART = """
UPDATE sched_artifact
SET size = %(size)s, sha256 = %(sha256)s, stored = 0, updated_at = clock_timestamp()
WHERE instance_id = %(instance_id)s AND path = %(path)s"""

_FORGET_CHUNKS = """
DELETE FROM sched_artifact_chunk WHERE instance_id = %(instance_id)s AND path = %(path)s"""

_APPEND = """
INSERT INTO sched_artifact_chunk (instance_id, path, start_offset, data)
VALUES (%(instance_id)s, %(path)s, %(start_offset)s, %(data)s)"""

_GROW = """
UPDATE sched_artifact SET stored = %(stored)s, updated_at = clock_timestamp()
WHERE instance_id = %(instance_id)s AND path = %(path)s"""

_TOTALS = """
SELECT count(*) AS files, coalesce(sum(size), 0) AS bytes FROM sched_artifact
WHERE instance_id = %(instance_id)s AND path <> %(path)s"""

_LIST = f"""
SELECT {_COLUMNS} FROM sched_artifact
WHERE instance_id = %(instance_id)s AND stored = size ORDER BY path"""

_FIND = f"""
SELECT {_COLUMNS} FROM sched_artifact
WHERE instance_id = %(instance_id)s AND path = %(path)s AND stored = size"""

_CHUNKS = """
SELECT start_offset, data FROM sched_artifact_chunk
WHERE instance_id = %(instance_id)s AND path = %(path)s AND start_offset >= %(from)s
ORDER BY start_offset LIMIT %(limit)s"""

# The newest instances of the newest tasks come first; those that failed need not have it.
_OF_JOB = """
SELECT i.id FROM sched_task t
JOIN sched_job j ON j.id = t.job_id
JOIN sched_task_instance_history i ON i.task_id = t.id
JOIN sched_artifact a ON a.instance_id = i.id AND a.path = %(path)s AND a.stored = a.size
WHERE j.namespace_id = %(namespace_id)s AND j.name = %(job)s AND t.status = 'succeeded'
ORDER BY t.id DESC, i.seq DESC LIMIT 1"""

_OF_TASK = """
SELECT a.instance_id FROM sched_task_instance_all i
JOIN sched_artifact a ON a.instance_id = i.id AND a.path = %(path)s AND a.stored = a.size
WHERE i.task_id = %(task)s AND i.namespace_id = %(namespace_id)s
ORDER BY i.seq DESC LIMIT 1"""


async def claims_of(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, ArtifactClaim]:
    rows = await connection.execute(_CLAIMS, {"ids": Uuids(ids)})
    return {row.id: ArtifactClaim(row.token, row.task_id, row.namespace_id) for row in rows}


async def lock(
    connection: Connection, claim: ArtifactClaim, instance_id: UUID, path: str, size: int, sha256: str
) -> StoredArtifact:
    """Lock an artifact, which is there afterwards; one that was of another file begins anew."""
    key = {"instance_id": instance_id, "path": path}
    facts = {**key, "size": size, "sha256": sha256}
    origin = {"task_id": claim.task_id, "namespace_id": claim.namespace_id}
    await connection.execute(_BEGIN, {**facts, **origin})
    found = (await connection.execute(_LOCK, key)).one()
    if (found.size, found.sha256) != (size, sha256):
        await restart(connection, instance_id, path, size, sha256)
        found = (await connection.execute(_LOCK, key)).one()
    return StoredArtifact(*found)


async def restart(connection: Connection, instance_id: UUID, path: str, size: int, sha256: str) -> None:
    """Forget what was stored of an artifact."""
    key = {"instance_id": instance_id, "path": path}
    await connection.execute(_FORGET_CHUNKS, key)
    await connection.execute(_RESTART, {**key, "size": size, "sha256": sha256})


async def append(connection: Connection, found: StoredArtifact, data: bytes) -> None:
    key = {"instance_id": found.instance_id, "path": found.path}
    await connection.execute(_APPEND, {**key, "start_offset": found.stored, "data": data})
    await connection.execute(_GROW, {**key, "stored": found.stored + len(data)})


async def totals_beside(connection: Connection, instance_id: UUID, path: str) -> tuple[int, int]:
    """Return how many other artifacts an instance has, and their bytes."""
    row = (await connection.execute(_TOTALS, {"instance_id": instance_id, "path": path})).one()
    return int(row.files), int(row.bytes)


async def list_artifacts(connection: Connection, instance_id: UUID) -> list[StoredArtifact]:
    rows = await connection.execute(_LIST, {"instance_id": instance_id})
    return [StoredArtifact(*row) for row in rows]


async def find(connection: Connection, instance_id: UUID, path: str) -> StoredArtifact | None:
    """Return an artifact that is complete."""
    row = (await connection.execute(_FIND, {"instance_id": instance_id, "path": path})).one_or_none()
    return None if row is None else StoredArtifact(*row)


async def chunks(
    connection: Connection, instance_id: UUID, path: str, start: int, limit: int
) -> list[tuple[int, bytes]]:
    rows = await connection.execute(
        _CHUNKS, {"instance_id": instance_id, "path": path, "from": start, "limit": limit}
    )
    return [(row.start_offset, bytes(row.data)) for row in rows]


async def instance_of_job(connection: Connection, namespace_id: int, job: str, path: str) -> UUID | None:
    """Return the instance of the newest succeeded task of a job that left this artifact."""
    rows = await connection.execute(_OF_JOB, {"namespace_id": namespace_id, "job": job, "path": path})
    found: UUID | None = rows.scalar_one_or_none()
    return found


async def instance_of_task(connection: Connection, namespace_id: int, task: UUID, path: str) -> UUID | None:
    rows = await connection.execute(_OF_TASK, {"namespace_id": namespace_id, "task": task, "path": path})
    found: UUID | None = rows.scalar_one_or_none()
    return found
