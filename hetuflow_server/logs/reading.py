"""Logs going out: as text, or followed live until the instance has ended and its log is complete."""

from __future__ import annotations

import base64
import codecs
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from hetuflow_core.errors import Invalid, NotFound
from hetuflow_core.resources.tasks import TaskInstance
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.states import INSTANCE_TERMINAL, InstanceStatus
from hetuflow_server.cluster.hints import Hints, instance_topic
from hetuflow_server.logs import store
from hetuflow_server.logs.lines import last_lines, matching_lines, text_of
from hetuflow_server.logs.store import LOG_BEGIN, LogPosition, StoredChunk
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue import tasks_store as task_store
from hetuflow_server.requests.context import RequestContext

# A chunk may hold a megabyte.
_BATCH = 16
_LOOK_AGAIN_SECONDS = 1.0
_KEEP_ALIVE_SECONDS = 15.0
# Agents ship the rest of a log before they report the end, but not for ever.
_LATE_LINES = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What is wanted of a log; `offset` and `length` count bytes of one stream."""

    stream: str | None = None
    offset: int = 0
    length: int | None = None
    # Only the last lines.
    tail: int | None = None
    # Only what arrived since then, as exact as chunks are.
    since: datetime | None = None
    # Only lines that hold this text.
    search: str | None = None


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Some text of one stream; `position` resumes behind it."""

    position: str
    stream: str
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class LogEnd:
    status: str
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class LogSilence:
    """Nothing for a while; said so that connections stay open."""


class LogReading:
    def __init__(self, database: Database, hints: Hints, clock: Clock) -> None:
        self._database = database
        self._hints = hints
        self._clock = clock

    async def instance(self, context: RequestContext, instance_id: UUID) -> TaskInstance:
        async with self._database.transaction(context) as connection:
            found = await task_store.instance_by_id(connection, instance_id)
        if found is None or not context.sees(found[1]):
            raise NotFound("There is no such task instance.", code="task_instance.not_found")
        return found[0]

    def read(self, instance_id: UUID, wanted: LogQuery) -> AsyncIterator[bytes]:
        """Give what was asked for of a log, piece by piece."""
        if wanted.search is not None:
            return matching_lines(self._all_chunks(instance_id, wanted), wanted.search)
        return (
            self._tail(instance_id, wanted) if wanted.tail is not None else self._range(instance_id, wanted)
        )

    async def _range(self, instance_id: UUID, wanted: LogQuery) -> AsyncIterator[bytes]:
        left = wanted.length
        async for chunk in self._all_chunks(instance_id, wanted):
            text = text_of(chunk)
            skipped = max(0, wanted.offset - chunk.position.start_offset) if wanted.stream else 0
            piece = text[skipped:] if left is None else text[skipped : skipped + left]
            if piece:
                yield piece
            if left is not None:
                left -= len(piece)
                if left <= 0:
                    return

    async def _tail(self, instance_id: UUID, wanted: LogQuery) -> AsyncIterator[bytes]:
        for _, text in await self._last_lines(instance_id, wanted):
            yield text

    async def _last_lines(self, instance_id: UUID, wanted: LogQuery) -> list[tuple[StoredChunk, bytes]]:
        async def read_tail(most: int) -> list[StoredChunk]:
            async with self._database.transaction() as connection:
                claim_no = await store.newest_claim(connection, instance_id)
                return await store.read_tail(connection, instance_id, claim_no, most, only=wanted.stream)

        return await last_lines(read_tail, wanted.tail or 0)

    async def _all_chunks(self, instance_id: UUID, wanted: LogQuery) -> AsyncIterator[StoredChunk]:
        after = LOG_BEGIN if wanted.since is None else LogPosition(wanted.since, "", -1)
        reaching = wanted.offset if wanted.stream else None
        while chunks := await self._chunks(instance_id, after, wanted.stream, reaching):
            after = chunks[-1].position
            for chunk in chunks:
                yield chunk

    def follow(
        self,
        context: RequestContext,
        instance_id: UUID,
        resume: str | None,
        wanted: LogQuery,
    ) -> AsyncIterator[LogPiece | LogEnd | LogSilence]:
        """Give the log as it grows, then how the instance ended; refuse a wrong position before it begins.

        Who resumes has had the last lines already, and what arrived since some time.
        """
        after = _parse_position(resume)
        if after == LOG_BEGIN and wanted.since is not None:
            after = LogPosition(wanted.since, "", -1)
        elif after != LOG_BEGIN:
            wanted = replace(wanted, tail=None)
        return self._follow(context, instance_id, after, wanted)

    async def _follow(
        self,
        context: RequestContext,
        instance_id: UUID,
        after: LogPosition,
        wanted: LogQuery,
    ) -> AsyncIterator[LogPiece | LogEnd | LogSilence]:
        decoders: defaultdict[str, codecs.IncrementalDecoder] = defaultdict(_decoder)
        silent_since = self._clock.monotonic()
        with self._hints.waiting([instance_topic(instance_id)]) as waiter:
            for chunk, text in await self._last_lines(instance_id, wanted) if wanted.tail else ():
                after = chunk.position
                yield _piece(chunk, text, decoders[chunk.position.stream])
            while not self._hints.closed:
                # The state is read before the log: what was written before the end is then surely seen.
                instance = await self.instance(context, instance_id)
                while chunks := await self._chunks(instance_id, after, wanted.stream):
                    after = chunks[-1].position
                    for chunk in chunks:
                        yield _piece(chunk, text_of(chunk), decoders[chunk.position.stream])
                    silent_since = self._clock.monotonic()
                if self._complete(instance):
                    yield LogEnd(instance.status, instance.exit_code)
                    return
                await waiter.wait(_LOOK_AGAIN_SECONDS)
                if self._clock.monotonic() - silent_since > _KEEP_ALIVE_SECONDS:
                    silent_since = self._clock.monotonic()
                    yield LogSilence()

    def _complete(self, instance: TaskInstance) -> bool:
        if InstanceStatus(instance.status) not in INSTANCE_TERMINAL or instance.finished_at is None:
            return False
        # An agent that reported itself has shipped its log; one that was lost may still come back with some.
        return (
            instance.status != InstanceStatus.LOST or self._clock.now() - instance.finished_at > _LATE_LINES
        )

    async def _chunks(
        self, instance_id: UUID, after: LogPosition, only: str | None, reaching: int | None = None
    ) -> list[StoredChunk]:
        async with self._database.transaction() as connection:
            claim_no = await store.newest_claim(connection, instance_id)
            return await store.read(
                connection, instance_id, claim_no, after, only=only, reaching=reaching, limit=_BATCH
            )


def _decoder() -> codecs.IncrementalDecoder:
    """Chunks may cut a character in two; bytes that are no UTF-8 become replacement characters."""
    return codecs.getincrementaldecoder("utf-8")("replace")


def _piece(chunk: StoredChunk, text: bytes, decoder: codecs.IncrementalDecoder) -> LogPiece:
    """A chunk, or its end, if `text` is no more of it."""
    position = chunk.position
    packed = msgspec.json.encode([position.created_at.isoformat(), position.stream, position.start_offset])
    return LogPiece(
        base64.urlsafe_b64encode(packed).decode(),
        position.stream,
        position.start_offset + chunk.byte_length - len(text),
        decoder.decode(text),
    )


def _parse_position(resume: str | None) -> LogPosition:
    if not resume:
        return LOG_BEGIN
    try:
        created_at, stream, offset = msgspec.json.decode(
            base64.urlsafe_b64decode(resume),
            type=tuple[datetime, str, int],
        )
    except (ValueError, msgspec.MsgspecError) as error:
        raise Invalid("This Last-Event-ID is not one of this stream's.") from error
    return LogPosition(created_at.astimezone(UTC), stream, offset)
