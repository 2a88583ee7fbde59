"""Carries plans out by hand: what a plan needs is answered from a script, and recorded."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

import msgspec

from hetuflow_core.client.exchange import Answer, Emit, NoAnswer, Now, Open, Pause, Read, Send

URL = "http://hetuflow.test"


class Script:
    """The outside world of one plan. Replies are used up in order; pauses move the clock."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asked: list[Any] = []
        self.pauses: list[Pause] = []
        self.emitted: list[Any] = []
        self.now = 1_000.0

    def play(self, plan: Generator[Any, Any, Any]) -> Any:
        outcome: Any = None
        while True:
            try:
                need = plan.send(outcome)
            except StopIteration as done:
                assert self.replies == [], "the plan did not ask for everything"
                return done.value
            outcome = self._meet(need)

    def _meet(self, need: Any) -> Any:
        match need:
            case Emit(item):
                return self.emitted.append(item)
            case Pause(least, spread):
                self.pauses.append(need)
                self.now += least + spread
                return None
            case Now():
                return self.now
            case Send(request) | Open(request):
                self.asked.append(request)
                return self.replies.pop(0)
            case Read(answer):
                return next(answer.chunks, None)
        raise AssertionError(need)


def good(value: Any, status: int = 200) -> Answer:
    return Answer(URL, status, {"content-type": "application/json"}, msgspec.json.encode(value))


def problem(status: int, headers: Mapping[str, str] | None = None, **fields: Any) -> Answer:
    body = {"type": "urn:x", "title": "x", "status": status, **fields}
    return Answer(
        URL,
        status,
        {"content-type": "application/problem+json", **(headers or {})},
        msgspec.json.encode(body),
    )


def streamed(chunks: Iterable[bytes | NoAnswer]) -> Answer:
    return Answer(URL, 200, {"content-type": "text/event-stream"}, chunks=iter(list(chunks)))


REFUSED = NoAnswer(URL, "connection refused")
