"""What an answer means that is no success."""

from __future__ import annotations

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
    """No usable answer came; the request may or may not have had its effect."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Problem(msgspec.Struct, frozen=True):
    """What matters of an RFC 9457 problem."""

    title: str = ""
    detail: str = ""
    code: str = ""


def refusal(status: int, headers: httpx.Headers, body: bytes, now: datetime) -> HetuflowError:
    """What an answer that is no success means."""
    problem = _problem(body)
    said = problem.detail or problem.title or f"HTTP status {status}"
    code = problem.code or None
    if status in (408, 425, 429) or status >= 500:  # noqa: PLR2004  the range HTTP calls server errors
        return Unanswered(
            f"The server cannot answer now: {said}", retry_after=retry_after(headers.get("Retry-After"), now)
        )
    if "Location" in headers:
        return Invalid(
            f"The server points to {headers['Location']}: set agent.server_url to the address behind it."
        )
    kind, opening = _REFUSALS.get(status, (Invalid, "The server refuses the request"))
    return kind(f"{opening}: {said}", code=code)


def retry_after(value: str | None, now: datetime) -> float | None:
    """The header in seconds, in either of its forms and within reason."""
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
    except msgspec.MsgspecError:  # a proxy's page, or nothing at all
        return Problem()
    return Problem(problem.title, problem.detail[:_LONGEST_DETAIL], problem.code)
