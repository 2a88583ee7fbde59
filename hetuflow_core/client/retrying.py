"""Asking again when that may help and cannot hurt."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from hetuflow_core.client.exchange import Answer, NoAnswer, Pause, Plan, Request, Send
from hetuflow_core.client.problems import error_of

TRIES: Final = 4
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
# A server that wants us away for longer than this is better told of than waited for.
_LONGEST_RETRY_AFTER: Final = 30.0

_BUSY: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


def answered(request: Request) -> Plan[Answer]:
    """A good answer, or the error it stands for."""
    tries = 0
    while True:
        reply: Answer | NoAnswer = yield Send(request)
        if isinstance(reply, Answer) and reply.good:
            return reply
        tries += 1
        pause = pause_before_next(reply, tries) if request.repeatable and tries < TRIES else None
        if pause is None:
            raise error_of(reply)
        yield pause


def pause_before_next(reply: Answer | NoAnswer, tries: int) -> Pause | None:
    """How long to wait after the `tries`-th failure in a row; None when asking again would not help.

    The jitter is full, so that clients which failed together do not come back together.
    """
    jitter = min(_FIRST_PAUSE * 2 ** (tries - 1), _LONGEST_PAUSE)
    if isinstance(reply, NoAnswer):
        return None if reply.timed_out else Pause(0.0, jitter)
    if reply.status not in _BUSY:
        return None
    wanted = _retry_after(reply)
    return Pause(wanted, jitter) if wanted <= _LONGEST_RETRY_AFTER else None


def _retry_after(answer: Answer) -> float:
    """Seconds; the other form, a date, would need both clocks to agree and is treated as no wish at all."""
    written = answer.headers.get("retry-after", "").strip()
    return float(written) if written.isascii() and written.isdigit() else 0.0
