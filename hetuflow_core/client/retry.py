"""Asking again when that may help and cannot hurt."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from hetuflow_core.client.exchange import Answer, NoAnswer, Pause, Plan, Request, Send
from hetuflow_core.client.problems import error_of

T = TypeVar("T")

TRIES: Final = 4
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
# A server that wants us away for longer than this is better told of than waited for.
_LONGEST_RETRY_AFTER: Final = 30.0

_BUSY: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


def answered(request: Request) -> Plan[Answer]:
    """A good answer, or the error it stands for."""
    reply = yield from _tried(request)
    if isinstance(reply, Answer) and reply.good:
        return reply
    raise error_of(reply)


def under_key(plan: Plan[T], key: str) -> Plan[T]:
    """The same plan, what it creates done once however often it is sent: each POST carries the key."""
    outcome: Any = None
    while True:
        try:
            need = plan.send(outcome)
        except StopIteration as done:
            result: T = done.value
            return result
        if isinstance(need, Send) and need.request.method == "POST" and not need.request.repeatable:
            headers = {**need.request.headers, "Idempotency-Key": key}
            outcome = yield from _tried(
                msgspec.structs.replace(need.request, headers=headers, repeatable=True)
            )
        else:
            outcome = yield need


def _tried(request: Request) -> Plan[Answer | NoAnswer]:
    tries = 0
    while True:
        reply: Answer | NoAnswer = yield Send(request)
        if isinstance(reply, Answer) and reply.good:
            return reply
        tries += 1
        pause = pause_before_next(reply, tries) if request.repeatable and tries < TRIES else None
        if pause is None:
            return reply
        yield pause


def pause_before_next(reply: Answer | NoAnswer, tries: int) -> Pause | None:
    """How long to wait after the `tries`-th failure in a row; None when asking again would not help.

    The jitter is full, so that clients which failed together do not come back together.
    """
    jitter = min(_FIRST_PAUSE * 2 ** (tries - 1), _LONGEST_PAUSE)
    if isinstance(reply, NoAnswer):
        return None if reply.timed_out else Pause(0.0, jitter)
    # A conflict that says when to come back: the first request with this key is still being answered.
    passing = reply.status == HTTPStatus.CONFLICT and "retry-after" in reply.headers
    if reply.status not in _BUSY and not passing:
        return None
    wanted = _retry_after(reply)
    return Pause(wanted, jitter) if wanted <= _LONGEST_RETRY_AFTER else None


def _retry_after(answer: Answer) -> float:
    """Seconds; the other form, a date, would need both clocks to agree and is treated as no wish at all."""
    written = answer.headers.get("retry-after", "").strip()
    return float(written) if written.isascii() and written.isdigit() else 0.0
