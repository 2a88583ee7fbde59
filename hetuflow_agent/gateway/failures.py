"""What a failed request means to its caller, and how long to wait before repeating it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import httpx
import msgspec

from hetuflow_core.errors import (
    Conflict,
    Denied,
    HetuflowError,
    Invalid,
    NotFound,
    ServerUnreachable,
    TooLarge,
    Unauthenticated,
)
from hetuflow_core.runtime.loop import backoff_delay

_FIRST_DELAY: Final = 0.2
_LONGEST_DELAY: Final = 15.0
_LONGEST_RETRY_AFTER: Final = 300.0
_LONGEST_DETAIL: Final = 300

_REFUSALS: Final[Mapping[int, tuple[type[HetuflowError], str]]] = {
    401: (Unauthenticated, "The server does not accept this agent's token"),
    403: (Denied, "The server denies this to the agent"),
    404: (NotFound, "The server does not know this address, check agent.server_url"),
    409: (Conflict, "The server's state does not allow this"),
    413: (TooLarge, "The server finds the request too large"),
}


class Unanswered(ServerUnreachable):
    """No usable answer arrived. The server may have processed the request or not."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Backoff:
    """Delays between repeated requests, with full jitter: agents must not all return at the same moment.

    `rng` is an argument so that tests control the draw.
    """

    def __init__(
        self, rng: random.Random, *, first: float = _FIRST_DELAY, longest: float = _LONGEST_DELAY
    ) -> None:
        # In a row.
        self.failures = 0
        self._rng = rng
        self._first = first
        self._longest = longest

    def fail(self, error: HetuflowError | None = None) -> float:
        """Count a failure and return the seconds to wait, at least what the server asked for in `error`."""
        self.failures += 1
        delay = self._rng.uniform(0.0, backoff_delay(self.failures, self._first, self._longest))
        if isinstance(error, Unanswered) and error.retry_after is not None:
            return error.retry_after + delay
        return delay

    def succeed(self) -> None:
        self.failures = 0


class Problem(msgspec.Struct, frozen=True):
    """The parts of an RFC 9457 problem that an agent uses."""

    title: str = ""
    detail: str = ""
    code: str = ""


def refusal(status: int, headers: httpx.Headers, body: bytes, now: datetime) -> HetuflowError:
    """The error for an answer whose status is not a success."""
    problem = _problem(body)
    text = problem.detail or problem.title or f"HTTP status {status}"
    code = problem.code or None
    if status in (408, 425, 429) or status >= 500:  # noqa: PLR2004  the range HTTP calls server errors
        return Unanswered(
            f"The server cannot answer now: {text}", retry_after=retry_after(headers.get("Retry-After"), now)
        )
    if "Location" in headers:
        return Invalid(
            f"The server points to {headers['Location']}: set agent.server_url to the address behind it."
        )
    kind, opening = _REFUSALS.get(status, (Invalid, "The server refuses the request"))
    return kind(f"{opening}: {text}", code=code)


def retry_after(value: str | None, now: datetime) -> float | None:
    """The header `Retry-After` in seconds, in either of its forms, with an upper bound."""
    if value is None:
        return None
    text = value.strip()
    if text.isdecimal():
        seconds = float(text)
    else:
        try:
            at = parsedate_to_datetime(text)
        except ValueError:
            return None
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        seconds = (at - now).total_seconds()
    return min(max(0.0, seconds), _LONGEST_RETRY_AFTER)


def _problem(body: bytes) -> Problem:
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:  # a page of a proxy, or an empty body
        return Problem()
    return Problem(problem.title, problem.detail[:_LONGEST_DETAIL], problem.code)
