"""Logs coming in: appended by offset, by whoever holds or held the claim.

Requests that arrive while a transaction is under way share the next one, and a transaction takes the same few
statements however many chunks it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import zstandard

from hetuflow_core import ids, messages as m
from hetuflow_core.durations import format_size
from hetuflow_core.errors import Invalid
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.agents.sessions import AgentSessions
from hetuflow_server.cluster.hints import Hints, instance_topic
from hetuflow_server.identity.access import AgentCredential
from hetuflow_server.logs import store as log_store
from hetuflow_server.logs.store import ChunkRow, LogClaim, StreamKey, StreamLength
from hetuflow_server.logs.streams import STREAMS, SYSTEM
from hetuflow_server.postgres.coalescing import Coalescer
from hetuflow_server.postgres.database import Connection, Database, Lane

MOST_CHUNKS = 200
MOST_CHUNK_BYTES = 1024 * 1024
# Of one transaction, compressed.
_BATCH_BYTES = 4 * 1024 * 1024


class LogIngest:
    def __init__(
        self, database: Database, hints: Hints, sessions: AgentSessions, clock: Clock, *, cap: int
    ) -> None:
        """`cap`: bytes of one stream; a daemon's loses its oldest beyond that, any other is cut."""
        self._database = database
        self._hints = hints
        self._sessions = sessions
        self._clock = clock
        self._cap = cap
        self._appending = Coalescer("append logs", self._append, most=_BATCH_BYTES, weigh=_weight)

    async def append(self, credential: AgentCredential, asked: m.LogChunks) -> m.LogChunksTaken:
        _check(asked)
        await self._sessions.current(credential, asked.session_id)
        results = await self._appending.ask(asked.chunks)
        return m.LogChunksTaken(ids.milliseconds(self._clock.now()), results)

    async def _append(self, batches: Sequence[Sequence[m.LogChunk]]) -> list[list[m.LogResult]]:
        chunks = [chunk for batch in batches for chunk in batch]
        async with self._database.transaction(lane=Lane.PLANNED) as connection:
            claims = await log_store.claims_of(connection, sorted({chunk.instance_id for chunk in chunks}))
            growth = _Growth(self._cap, claims)
            growth.lengths = await log_store.lock_lengths(connection, growth.keys_of(chunks))
            results = [[growth.take(chunk) for chunk in batch] for batch in batches]
            await self._write(connection, growth)
        self._hints.give({instance_topic(row.instance_id) for row in growth.rows})
        return results

    async def _write(self, connection: Connection, growth: _Growth) -> None:
        await log_store.append(connection, growth.rows, growth.changed(), last=not growth.rotations)
        for key, keep_from in growth.rotations.items():
            await log_store.rotate(connection, key, keep_from)


@dataclass(slots=True)
class _Growth:
    """Decides about chunks one after the other, as if each were a transaction of its own."""

    cap: int
    claims: dict[UUID, LogClaim]
    lengths: dict[StreamKey, StreamLength] = field(default_factory=dict)
    rows: list[ChunkRow] = field(default_factory=list)
    # Stream → from where on it is kept.
    rotations: dict[StreamKey, int] = field(default_factory=dict)
    _touched: dict[StreamKey, StreamLength] = field(default_factory=dict)

    def keys_of(self, chunks: Sequence[m.LogChunk]) -> list[StreamKey]:
        keys = {self._key(chunk) for chunk in chunks if self._owns(chunk)}
        # A stream that is cut says so in the system's.
        keys |= {replace(key, stream=SYSTEM) for key in keys if not self.claims[key.instance_id].daemon}
        return sorted(keys, key=lambda key: (key.instance_id, key.claim_no, key.stream))

    def take(self, chunk: m.LogChunk) -> m.LogResult:
        if not self._owns(chunk):
            return m.LogResult(chunk.instance_id, chunk.stream, m.LogOutcome.REFUSED, 0)
        known = self.lengths[self._key(chunk)]
        if known.length != chunk.offset:
            return m.LogResult(chunk.instance_id, chunk.stream, m.LogOutcome.OFFSET, known.length)
        if known.length + chunk.byte_length > self.cap and not self.claims[chunk.instance_id].daemon:
            self._cut(known)
            return m.LogResult(chunk.instance_id, chunk.stream, m.LogOutcome.REFUSED, known.length)
        grown = self._grow(known, chunk.byte_length, chunk.data)
        # Not with every chunk: an eighth more than asked for may be kept.
        if grown.length // (self.cap // 8 or 1) != known.length // (self.cap // 8 or 1):
            self._rotate(grown)
        return m.LogResult(chunk.instance_id, chunk.stream, m.LogOutcome.APPENDED, grown.length)

    def changed(self) -> list[StreamLength]:
        return list(self._touched.values())

    def _owns(self, chunk: m.LogChunk) -> bool:
        claim = self.claims.get(chunk.instance_id)
        return claim is not None and claim.token == chunk.token

    def _key(self, chunk: m.LogChunk) -> StreamKey:
        return StreamKey(chunk.instance_id, self.claims[chunk.instance_id].claim_no, chunk.stream)

    def _grow(self, known: StreamLength, byte_length: int, data: bytes) -> StreamLength:
        key = known.key
        self.rows.append(ChunkRow(key.instance_id, key.claim_no, key.stream, known.length, byte_length, data))
        return self._note(replace(known, length=known.length + byte_length))

    def _cut(self, known: StreamLength) -> None:
        if known.truncated:
            return
        self._note(replace(known, truncated=True))
        text = (
            f"The {known.stream} of this log is cut here: it is longer than {format_size(self.cap)}.\n"
        ).encode()
        system = self.lengths[replace(known.key, stream=SYSTEM)]
        self._grow(system, len(text), zstandard.ZstdCompressor().compress(text))

    def _rotate(self, grown: StreamLength) -> None:
        if grown.length > self.cap and self.claims[grown.instance_id].daemon:
            self.rotations[grown.key] = grown.length - self.cap

    def _note(self, length: StreamLength) -> StreamLength:
        self.lengths[length.key] = self._touched[length.key] = length
        return length


def _weight(chunks: Sequence[m.LogChunk]) -> int:
    return sum(len(chunk.data) for chunk in chunks)


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
