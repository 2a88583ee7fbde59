"""Answers into results or into the errors of `hetuflow_core.errors`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from hetuflow_core.client.exchange import Answer, NoAnswer
from hetuflow_core.environment_variables import KEY_VARIABLE
from hetuflow_core.errors import (
    Conflict,
    Denied,
    Fault,
    HetuflowError,
    Invalid,
    NotFound,
    ServerUnreachable,
    Stale,
    TooLarge,
    TooMany,
    Unauthenticated,
)

T = TypeVar("T")

_ERRORS: Final[Mapping[int, type[HetuflowError]]] = {
    HTTPStatus.BAD_REQUEST: Invalid,
    HTTPStatus.UNAUTHORIZED: Unauthenticated,
    HTTPStatus.FORBIDDEN: Denied,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.PRECONDITION_FAILED: Stale,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: TooLarge,
    HTTPStatus.UNPROCESSABLE_ENTITY: Invalid,
    HTTPStatus.TOO_MANY_REQUESTS: TooMany,
    # What a proxy answers when the server behind it does not.
    HTTPStatus.BAD_GATEWAY: ServerUnreachable,
    HTTPStatus.SERVICE_UNAVAILABLE: ServerUnreachable,
    HTTPStatus.GATEWAY_TIMEOUT: ServerUnreachable,
}


class _Fault(msgspec.Struct, frozen=True):
    field: str = ""
    message: str = ""


class _Problem(msgspec.Struct, frozen=True):
    """application/problem+json, read leniently: something between us and the server may have written it."""

    detail: str = ""
    code: str | None = None
    trace_id: str | None = None
    errors: list[_Fault] = []


def decoded(answer: Answer, expected: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.body, type=expected)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HetuflowError(
            f"What {answer.url} answered is not what this version of the client expects ({error}): check "
            "that the address is that of a Hetuflow server and that both have the same version.",
            code="client.answer_unreadable",
        ) from None


def error_of(reply: Answer | NoAnswer) -> HetuflowError:
    """The error that an answer other than a good one stands for, or that there is none."""
    if isinstance(reply, NoAnswer):
        return ServerUnreachable(
            f"No Hetuflow server answers at {reply.url} ({reply.reason}): check the address and that the "
            "server runs."
        )
    problem = _problem(reply)
    if problem is None or not problem.detail:
        return _undescribed(reply)
    message = problem.detail
    if problem.code == Unauthenticated.code and not reply.with_key:
        message = f"{reply.url} needs an API key and none was given: set {KEY_VARIABLE}, or log in."
    if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR and problem.trace_id:
        message = f"{message.rstrip('.')} (trace_id {problem.trace_id})."
    faults = [Fault(fault.field, fault.message) for fault in problem.errors]
    return _ERRORS.get(reply.status, HetuflowError)(message, code=problem.code, faults=faults)


def _problem(answer: Answer) -> _Problem | None:
    if "json" in answer.headers.get("content-type", ""):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.json.decode(answer.body, type=_Problem)
    return None


def _undescribed(answer: Answer) -> HetuflowError:
    """The error of an answer that no Hetuflow server wrote."""
    phrase = _phrase(answer.status)
    if _ERRORS.get(answer.status) in {ServerUnreachable, TooMany}:
        return ServerUnreachable(
            f"The server behind {answer.url} cannot answer now ({phrase}): try again later."
        )
    return HetuflowError(
        f"{answer.url} answered {phrase} without a word from Hetuflow: check that the address is that of a "
        "Hetuflow server.",
        code="client.answer_unreadable",
    )


def _phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
