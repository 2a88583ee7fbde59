"""Logs: appended by offset, read back in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection


@dataclass(frozen=True, slots=True)
class ChunkRow:
    instance_id: UUID
    claim_no: int
    stream: str
    start_offset: int
    byte_length: int
    data: bytes


# Tokens of live instances, and of finished ones: the last lines often come after the end.
_CLAIMS = """
SELECT id, token, claim_no FROM sched_task_instance WHERE id = ANY(%(ids)s::uuid[]) AND token IS NOT NULL
UNION ALL
SELECT id, token, claim_no FROM sched_task_instance_history
WHERE id = ANY(%(ids)s::uuid[]) AND token IS NOT NULL"""

# Grows a stream only from where it stands; no row back means the chunk starts somewhere else.
_BEGIN = """
INSERT INTO sched_log_length (instance_id, claim_no, stream, length)
VALUES (%(instance_id)s, %(claim_no)s, %(stream)s, %(byte_length)s)
ON CONFLICT (instance_id, claim_no, stream) DO NOTHING RETURNING length"""

_GROW = """
UPDATE sched_log_length SET length = length + %(byte_length)s, updated_at = clock_timestamp()
WHERE instance_id = %(instance_id)s AND claim_no = %(claim_no)s AND stream = %(stream)s
  AND length = %(start_offset)s
RETURNING length"""

_LENGTH = """
SELECT length FROM sched_log_length
WHERE instance_id = %(instance_id)s AND claim_no = %(claim_no)s AND stream = %(stream)s"""

_APPEND = """
INSERT INTO sched_log_chunk (created_at, instance_id, claim_no, stream, start_offset, byte_length, data)
VALUES (clock_timestamp(), %(instance_id)s, %(claim_no)s, %(stream)s, %(start_offset)s, %(byte_length)s,
        %(data)s)"""

# In the order of arrival, so that a reader can go on behind the last position it has seen.
_READ = """
SELECT created_at, stream, start_offset, byte_length, data FROM sched_log_chunk
WHERE instance_id = %(instance_id)s AND claim_no = %(claim_no)s
  AND (%(only)s::text IS NULL OR stream = %(only)s)
  AND (created_at, stream, start_offset) > (%(created_at)s, %(stream)s, %(start_offset)s)
ORDER BY created_at, stream, start_offset LIMIT %(limit)s"""

# Every chunk has at least one byte, so no more of them than bytes are looked at.
_READ_TAIL = """
SELECT created_at, stream, start_offset, byte_length, data
FROM (
  SELECT *, sum(byte_length) OVER (ORDER BY created_at DESC, stream DESC, start_offset DESC) AS reach
  FROM (
    SELECT created_at, stream, start_offset, byte_length, data FROM sched_log_chunk
    WHERE instance_id = %(instance_id)s AND claim_no = %(claim_no)s AND stream IN ('stdout', 'stderr')
    ORDER BY created_at DESC, stream DESC, start_offset DESC LIMIT %(most)s) newest) reaching
WHERE reach - byte_length < %(most)s
ORDER BY created_at, stream, start_offset"""


@dataclass(frozen=True, slots=True, order=True)
class LogPosition:
    """Where a reader has come to: the chunk it saw last."""

    created_at: datetime
    stream: str
    start_offset: int


LOG_BEGIN = LogPosition(datetime(1970, 1, 1, tzinfo=UTC), "", -1)


@dataclass(frozen=True, slots=True)
class StoredChunk:
    position: LogPosition
    byte_length: int
    data: bytes


async def claims_of(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, tuple[UUID, int]]:
    """Return {instance: (token, claim number)}."""
    rows = await connection.exec_driver_sql(_CLAIMS, {"ids": list(ids)})
    return {row.id: (row.token, row.claim_no) for row in rows}


async def append(connection: AsyncConnection, chunk: ChunkRow) -> int | None:
    """Append a chunk that starts where its stream ends; return the new length, or None when it does not."""
    parameters = {
        "instance_id": chunk.instance_id,
        "claim_no": chunk.claim_no,
        "stream": chunk.stream,
        "start_offset": chunk.start_offset,
        "byte_length": chunk.byte_length,
    }
    statement = _GROW if chunk.start_offset else _BEGIN
    length = (await connection.exec_driver_sql(statement, parameters)).scalar_one_or_none()
    if length is None:
        return None
    await connection.exec_driver_sql(_APPEND, {**parameters, "data": chunk.data})
    return int(length)


async def length_of(connection: AsyncConnection, instance_id: UUID, claim_no: int, stream: str) -> int:
    row = await connection.exec_driver_sql(
        _LENGTH,
        {"instance_id": instance_id, "claim_no": claim_no, "stream": stream},
    )
    return int(row.scalar_one_or_none() or 0)


async def newest_claim(connection: AsyncConnection, instance_id: UUID) -> int:
    """Return the number of the claim whose log is the instance's log; 0 when it has none."""
    row = await connection.exec_driver_sql(
        "SELECT max(claim_no) FROM sched_log_length WHERE instance_id = %(id)s",
        {"id": instance_id},
    )
    return int(row.scalar_one() or 0)


async def read(
    connection: AsyncConnection,
    instance_id: UUID,
    claim_no: int,
    after: LogPosition,
    *,
    only: str | None = None,
    limit: int,
) -> list[StoredChunk]:
    """Return the chunks behind `after` in the order they arrived, of one stream or of all."""
    rows = await connection.exec_driver_sql(
        _READ,
        {
            "instance_id": instance_id,
            "claim_no": claim_no,
            "only": only,
            "created_at": after.created_at,
            "stream": after.stream,
            "start_offset": after.start_offset,
            "limit": limit,
        },
    )
    return [_stored(row) for row in rows]


async def read_tail(
    connection: AsyncConnection, instance_id: UUID, claim_no: int, most: int
) -> list[StoredChunk]:
    """Return the newest chunks of what the work wrote, as many as its last `most` bytes take, in order."""
    rows = await connection.exec_driver_sql(
        _READ_TAIL, {"instance_id": instance_id, "claim_no": claim_no, "most": most}
    )
    return [_stored(row) for row in rows]


def _stored(row: Any) -> StoredChunk:
    return StoredChunk(
        LogPosition(row.created_at, row.stream, row.start_offset), row.byte_length, bytes(row.data)
    )
