"""Logs: appended by offset, read back in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from hetuflow_server.postgres.arrays import Uuids
from hetuflow_server.postgres.batches import transpose
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.sql_fragments import by_key


@dataclass(frozen=True, slots=True)
class ChunkRow:
    instance_id: UUID
    claim_no: int
    stream: str
    start_offset: int
    byte_length: int
    data: bytes


# Tokens of live instances, and of finished ones: the last lines often come after the end. The history has
# many partitions, so it is asked for what is not live only.
_LIVE_CLAIMS = """
SELECT id, token, claim_no, slot FROM sched_task_instance
WHERE id = ANY(%(ids)s::uuid[]) AND token IS NOT NULL"""
_FINISHED_CLAIMS = """
SELECT id, token, claim_no, slot FROM sched_task_instance_history
WHERE id = ANY(%(ids)s::uuid[]) AND id BETWEEN %(first)s AND %(last)s AND token IS NOT NULL"""

# A stream's row is locked before anything is appended to it, so that it must be there first.
_BEGIN = """
INSERT INTO sched_log_length (instance_id, claim_no, stream)
SELECT * FROM unnest(%(instance_id)s::uuid[], %(claim_no)s::integer[], %(stream)s::text[])
ON CONFLICT (instance_id, claim_no, stream) DO NOTHING"""

_LOCK_LENGTHS = """
SELECT instance_id, claim_no, stream, length, truncated FROM sched_log_length
WHERE instance_id = ANY(%(ids)s::uuid[]) ORDER BY instance_id, claim_no, stream FOR UPDATE"""

# Chunks one after the other by the clock: readers go on behind the last time they have seen.
_APPEND = f"""
WITH grown AS (
  UPDATE sched_log_length l SET length = n.length, truncated = n.truncated, updated_at = clock_timestamp()
  FROM unnest(%(of_instance_id)s::uuid[], %(of_claim_no)s::integer[], %(of_stream)s::text[],
              %(of_length)s::bigint[], %(of_truncated)s::boolean[])
    AS n(instance_id, claim_no, stream, length, truncated)
  WHERE {by_key("l.instance_id", "n.instance_id")} AND l.claim_no = n.claim_no AND l.stream = n.stream)
INSERT INTO sched_log_chunk (created_at, instance_id, claim_no, stream, start_offset, byte_length, data)
SELECT clock_timestamp(), instance_id, claim_no, stream, start_offset, byte_length, data
FROM unnest(%(instance_id)s::uuid[], %(claim_no)s::integer[], %(stream)s::text[], %(start_offset)s::bigint[],
            %(byte_length)s::integer[], %(data)s::bytea[]) WITH ORDINALITY
  AS n(instance_id, claim_no, stream, start_offset, byte_length, data, place)
ORDER BY place"""

_ROTATE = """
DELETE FROM sched_log_chunk
WHERE instance_id = %(instance_id)s AND claim_no = %(claim_no)s AND stream = %(stream)s
  AND start_offset + byte_length <= %(keep_from)s"""

# In the order of arrival, so that a reader can go on behind the last position it has seen.
_READ = """
SELECT created_at, stream, start_offset, byte_length, data FROM sched_log_chunk
WHERE instance_id = %(instance_id)s AND claim_no = %(claim_no)s
  AND (%(only)s::text IS NULL OR stream = %(only)s)
  AND (%(reaching)s::bigint IS NULL OR start_offset + byte_length > %(reaching)s)
  AND (created_at, stream, start_offset) > (%(created_at)s, %(stream)s, %(start_offset)s)
ORDER BY created_at, stream, start_offset LIMIT %(limit)s"""

# Every chunk has at least one byte, so no more of them than bytes are looked at.
_READ_TAIL = """
SELECT created_at, stream, start_offset, byte_length, data
FROM (
  SELECT *, sum(byte_length) OVER (ORDER BY created_at DESC, stream DESC, start_offset DESC) AS reach
  FROM (
    SELECT created_at, stream, start_offset, byte_length, data FROM sched_log_chunk
    WHERE instance_id = %(instance_id)s AND claim_no = %(claim_no)s
      AND (stream = %(only)s OR (%(only)s::text IS NULL AND stream IN ('stdout', 'stderr')))
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


@dataclass(frozen=True, slots=True)
class LogClaim:
    """Whose log an instance's is; `daemon` for one that keeps running."""

    token: UUID
    claim_no: int
    daemon: bool


@dataclass(frozen=True, slots=True)
class StreamKey:
    instance_id: UUID
    claim_no: int
    stream: str


@dataclass(frozen=True, slots=True)
class StreamLength:
    instance_id: UUID
    claim_no: int
    stream: str
    length: int
    truncated: bool = False

    @property
    def key(self) -> StreamKey:
        return StreamKey(self.instance_id, self.claim_no, self.stream)


async def claims_of(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, LogClaim]:
    rows = list(await connection.execute(_LIVE_CLAIMS, {"ids": Uuids(ids)}))
    if len(rows) < len(ids):
        ended = sorted(set(ids).difference(row.id for row in rows))
        parameters = {"ids": Uuids(ended), "first": ended[0], "last": ended[-1]}
        rows += await connection.execute(_FINISHED_CLAIMS, parameters)
    return {row.id: LogClaim(row.token, row.claim_no, row.slot is not None) for row in rows}


async def lock_lengths(connection: Connection, wanted: Sequence[StreamKey]) -> dict[StreamKey, StreamLength]:
    """Lock these streams and say how long they are; one that was not there is there now, and empty."""
    found = await _lock_lengths(connection, wanted)
    missing = [key for key in wanted if key not in found]
    if missing:
        await connection.execute(_BEGIN, transpose(StreamKey, missing))
        found = await _lock_lengths(connection, wanted)
    return {key: found[key] for key in wanted}


async def _lock_lengths(connection: Connection, wanted: Sequence[StreamKey]) -> dict[StreamKey, StreamLength]:
    ids = sorted({key.instance_id for key in wanted})
    rows = await connection.execute(_LOCK_LENGTHS, {"ids": Uuids(ids)})
    lengths = [
        StreamLength(row.instance_id, row.claim_no, row.stream, row.length, row.truncated) for row in rows
    ]
    return {length.key: length for length in lengths}


async def append(
    connection: Connection,
    chunks: Sequence[ChunkRow],
    lengths: Sequence[StreamLength],
    *,
    last: bool = False,
) -> None:
    """Append chunks that were found to fit locked streams, and write how long those are now.

    With `last` the transaction is committed in the same round trip.
    """
    if chunks or lengths:
        grown = {f"of_{name}": values for name, values in transpose(StreamLength, lengths).items()}
        await connection.execute(_APPEND, {**transpose(ChunkRow, chunks), **grown}, last=last)


async def rotate(connection: Connection, key: StreamKey, keep_from: int) -> None:
    """Forget the chunks of a stream that end before this offset."""
    await connection.execute(
        _ROTATE,
        {
            "instance_id": key.instance_id,
            "claim_no": key.claim_no,
            "stream": key.stream,
            "keep_from": keep_from,
        },
    )


async def newest_claim(connection: Connection, instance_id: UUID) -> int:
    """Return the number of the claim whose log is the instance's log; 0 when it has none."""
    row = await connection.execute(
        "SELECT max(claim_no) FROM sched_log_length WHERE instance_id = %(id)s",
        {"id": instance_id},
    )
    return int(row.scalar_one() or 0)


async def read(
    connection: Connection,
    instance_id: UUID,
    claim_no: int,
    after: LogPosition,
    *,
    only: str | None = None,
    reaching: int | None = None,
    limit: int,
) -> list[StoredChunk]:
    """Return the chunks behind `after` in the order they arrived, of one stream or of all.

    `reaching`: those that reach beyond this offset.
    """
    rows = await connection.execute(
        _READ,
        {
            "instance_id": instance_id,
            "claim_no": claim_no,
            "only": only,
            "reaching": reaching,
            "created_at": after.created_at,
            "stream": after.stream,
            "start_offset": after.start_offset,
            "limit": limit,
        },
    )
    return [_stored(row) for row in rows]


async def read_tail(
    connection: Connection, instance_id: UUID, claim_no: int, most: int, *, only: str | None = None
) -> list[StoredChunk]:
    """Return the newest chunks of what the work wrote, as many as its last `most` bytes take, in order."""
    rows = await connection.execute(
        _READ_TAIL, {"instance_id": instance_id, "claim_no": claim_no, "most": most, "only": only}
    )
    return [_stored(row) for row in rows]


def _stored(row: Any) -> StoredChunk:
    return StoredChunk(
        LogPosition(row.created_at, row.stream, row.start_offset), row.byte_length, bytes(row.data)
    )
