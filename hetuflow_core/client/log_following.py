"""Following an instance's log while it is written, across lost connections and server restarts."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from urllib.parse import quote
from uuid import UUID

import msgspec

from hetuflow_core.client.calls import query_of
from hetuflow_core.client.exchange import (
    Answer,
    Emit,
    NoAnswer,
    Now,
    Open,
    Pause,
    Plan,
    Read,
    Request,
    Stream,
)
from hetuflow_core.client.problems import decoded, error_of
from hetuflow_core.client.retry import pause_before_next
from hetuflow_core.client.sse import EventParser, ServerSentEvent

# How long a server may be away before following or waiting is given up: a restart with migrations fits in.
PATIENCE_SECONDS: Final = 60.0


class LogPiece(msgspec.Struct, frozen=True):
    # `stdout` or `stderr`
    stream: str
    # Of its first byte in the stream.
    offset: int
    text: str


class LogEnd(msgspec.Struct, frozen=True):
    """The instance has finished and its log is complete."""

    status: str
    exit_code: int | None = None


def follow_logs(
    instance_id: UUID | str,
    stream: str | None = None,
    *,
    tail: int | None = None,
    since: datetime | None = None,
) -> Stream[LogPiece | LogEnd]:
    """The log, live, from its beginning or its last lines or a time on; the last item is a `LogEnd`.

    A lost connection is taken up again where it broke off, so that nothing comes twice.
    """
    query = query_of({"stream": stream, "tail": tail, "since": since})
    position: str | None = None
    heard_at: float | None = None
    failures = 0
    while True:
        reply: Answer | NoAnswer = yield Open(_request(instance_id, query, position))
        if isinstance(reply, Answer) and reply.good:
            parser = EventParser(position)
            heard_at = yield Now()
            while isinstance(chunk := (yield Read(reply)), bytes):
                failures, heard_at = 0, (yield Now())
                for event in parser.feed(chunk):
                    position = event.last_id
                    item = _item(event, reply)
                    if item is not None:
                        yield Emit(item)
                    if isinstance(item, LogEnd):
                        return
            # Closing the connection without an end is no answer to what was asked.
            reply = chunk if isinstance(chunk, NoAnswer) else NoAnswer(reply.url, "it closed the connection")
        failures += 1
        yield (yield from pause_or_give_up(reply, failures, heard_at))


def pause_or_give_up(reply: Answer | NoAnswer, failures: int, heard_at: float | None) -> Plan[Pause]:
    if heard_at is None:
        # Nothing was ever heard: as with any other question, a wrong address is told at once.
        raise error_of(reply)
    waited = (yield Now()) - heard_at
    if isinstance(reply, NoAnswer) and reply.timed_out:
        # Not even a keep-alive came: the path to the server is dead, a new connection may find another.
        reply = NoAnswer(reply.url, reply.reason)
    pause = pause_before_next(reply, failures)
    if pause is None or waited > PATIENCE_SECONDS:
        raise error_of(reply)
    return pause


def _request(instance_id: UUID | str, query: tuple[tuple[str, str], ...], position: str | None) -> Request:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if position is not None:
        headers["Last-Event-ID"] = position
    path = f"/task-instances/{quote(str(instance_id), safe='')}/logs/stream"
    return Request("GET", path, query, headers=headers, repeatable=True)


def _item(event: ServerSentEvent, answer: Answer) -> LogPiece | LogEnd | None:
    """None for kinds of events that a newer server may send."""
    body = Answer(answer.url, answer.status, answer.headers, event.data.encode())
    if event.kind == "log":
        return decoded(body, LogPiece)
    return decoded(body, LogEnd) if event.kind == "end" else None
