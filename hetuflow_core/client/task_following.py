"""Following the tasks of a namespace, across lost connections and server restarts."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from hetuflow_core.client.exchange import Answer, Emit, NoAnswer, Now, Open, Read, Request, Stream
from hetuflow_core.client.log_following import pause_or_give_up
from hetuflow_core.client.problems import decoded
from hetuflow_core.client.sse import EventParser, ServerSentEvent
from hetuflow_core.resources.tasks import TaskChange


class TasksOpened(msgspec.Struct, frozen=True):
    """From here on every change is told; what was before is in the list of tasks.

    `start_over`: what was told before does not lead here, the list is to be looked at again.
    """

    start_over: bool


def follow_tasks(namespace: str) -> Stream[TasksOpened | TaskChange]:
    """What becomes of the tasks of a namespace, in the order of the commits, until you stop iterating.

    A lost connection is taken up again where it broke off, so that nothing is missing or comes twice.
    """
    position: str | None = None
    heard_at: float | None = None
    failures = 0
    while True:
        reply: Answer | NoAnswer = yield Open(_request(namespace, position))
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
                position = parser.last_id
            reply = chunk if isinstance(chunk, NoAnswer) else NoAnswer(reply.url, "it closed the connection")
        failures += 1
        yield (yield from pause_or_give_up(reply, failures, heard_at))


def _request(namespace: str, position: str | None) -> Request:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if position is not None:
        headers["Last-Event-ID"] = position
    path = f"/namespaces/{quote(namespace, safe='')}/tasks/stream"
    return Request("GET", path, headers=headers, repeatable=True)


def _item(event: ServerSentEvent, answer: Answer) -> TasksOpened | TaskChange | None:
    """None for kinds of events that a newer server may send."""
    body = Answer(answer.url, answer.status, answer.headers, event.data.encode())
    if event.kind == "task":
        return decoded(body, TaskChange)
    return decoded(body, TasksOpened) if event.kind == "open" else None
