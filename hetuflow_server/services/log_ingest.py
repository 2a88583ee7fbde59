"""Logs coming in: appended by offset, by whoever holds or held the claim."""

from __future__ import annotations

from uuid import UUID

import zstandard

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import Invalid
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.services.access import AgentCredential
from hetuflow_server.services.agent_sessions import AgentSessions
from hetuflow_server.store import log_chunks
from hetuflow_server.store.database import Connection, Database
from hetuflow_server.store.log_chunks import ChunkRow
from hetuflow_server.stream.hints import Hints, instance_topic

MOST_CHUNKS = 200
MOST_CHUNK_BYTES = 1024 * 1024
# A log longer than this is cut; the agent is told to send no more of it.
LOG_CAP_BYTES = 64 * 1024 * 1024
STREAMS = frozenset({"stdout", "stderr", "system"})


class LogIngest:
    def __init__(self, database: Database, hints: Hints, sessions: AgentSessions, clock: Clock) -> None:
        self._database = database
        self._hints = hints
        self._sessions = sessions
        self._clock = clock

    async def append(self, credential: AgentCredential, asked: m.LogChunks) -> m.LogChunksTaken:
        _check(asked)
        await self._sessions.current(credential, asked.session_id)
        async with self._database.transaction() as connection:
            claims = await log_chunks.claims_of(connection, [chunk.instance_id for chunk in asked.chunks])
            results = [await _append_one(connection, chunk, claims) for chunk in asked.chunks]
        self._hints.give({instance_topic(chunk.instance_id) for chunk in asked.chunks})
        return m.LogChunksTaken(ids.milliseconds(self._clock.now()), results)


async def _append_one(
    connection: Connection,
    chunk: m.LogChunk,
    claims: dict[UUID, tuple[UUID, int]],
) -> m.LogResult:
    token, claim_no = claims.get(chunk.instance_id, (None, 0))
    if token != chunk.token:
        return m.LogResult(chunk.instance_id, chunk.stream, m.LogOutcome.REFUSED, 0)
    if chunk.offset + chunk.byte_length > LOG_CAP_BYTES:
        length = await log_chunks.length_of(connection, chunk.instance_id, claim_no, chunk.stream)
        return m.LogResult(chunk.instance_id, chunk.stream, m.LogOutcome.REFUSED, length)
    row = ChunkRow(
        chunk.instance_id,
        claim_no,
        chunk.stream,
        chunk.offset,
        chunk.byte_length,
        chunk.data,
    )
    grown = await log_chunks.append(connection, row)
    if grown is not None:
        return m.LogResult(chunk.instance_id, chunk.stream, m.LogOutcome.APPENDED, grown)
    length = await log_chunks.length_of(connection, chunk.instance_id, claim_no, chunk.stream)
    return m.LogResult(chunk.instance_id, chunk.stream, m.LogOutcome.OFFSET, length)


def _check(asked: m.LogChunks) -> None:
    """Refuse what could not be read back: the bytes must be what they are said to be."""
    if len(asked.chunks) > MOST_CHUNKS:
        raise Invalid(f"A request holds at most {MOST_CHUNKS} chunks of logs.")
    decompressor = zstandard.ZstdDecompressor()
    for chunk in asked.chunks:
        if chunk.stream not in STREAMS:
            raise Invalid(f"There is no log stream {chunk.stream}.")
        if not 0 < chunk.byte_length <= MOST_CHUNK_BYTES or chunk.offset < 0:
            raise Invalid(f"A chunk of a log has 1 to {MOST_CHUNK_BYTES} bytes at an offset from 0.")
        try:
            text = decompressor.decompress(chunk.data, max_output_size=MOST_CHUNK_BYTES)
        except zstandard.ZstdError as error:
            raise Invalid("A chunk of a log is not zstd data, or longer than it says.") from error
        if len(text) != chunk.byte_length:
            raise Invalid("A chunk of a log has another length than it says.")
