"""The one place that turns errors into HTTP answers: application/problem+json with a stable code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from hetuflow_core import errors
from hetuflow_core.errors import Fault, HetuflowError
from hetuflow_server.http.credentials import ASKS_PASSWORD
from hetuflow_server.postgres.faults import busy

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.http")

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_SECONDS = 2
_ASK_FOR_KEY = 'Basic realm="Hetuflow: any name, an API key as the password", charset="UTF-8"'

# The most specific class wins.
STATUSES: Mapping[type[HetuflowError], HTTPStatus] = {
    errors.HetuflowError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.DatabaseUnusable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ServerUnreachable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.TooMany: HTTPStatus.TOO_MANY_REQUESTS,
    errors.Invalid: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.Denied: HTTPStatus.FORBIDDEN,
    errors.Unauthenticated: HTTPStatus.UNAUTHORIZED,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.Stale: HTTPStatus.PRECONDITION_FAILED,
    errors.TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
}

# What litestar raises by itself, before any handler of ours is reached.
_FRAMEWORK_CODES: Mapping[int, str] = {
    HTTPStatus.BAD_REQUEST: "request.malformed",
    HTTPStatus.UNAUTHORIZED: "unauthenticated",
    HTTPStatus.FORBIDDEN: "denied",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "request.method",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "request.media_type",
    HTTPStatus.UNPROCESSABLE_ENTITY: "invalid",
    HTTPStatus.TOO_MANY_REQUESTS: "too_many_requests",
}


_OUR_CODES: Mapping[int, str] = {
    HTTPStatus.CONFLICT: errors.Conflict.code,
    HTTPStatus.PRECONDITION_FAILED: errors.Stale.code,
    HTTPStatus.SERVICE_UNAVAILABLE: errors.DatabaseUnusable.code,
}


def code_of(status: HTTPStatus) -> str:
    """Return the most general code of what is answered with this status."""
    return _FRAMEWORK_CODES.get(status) or _OUR_CODES.get(status, "request.refused")


class ProblemFault(msgspec.Struct, frozen=True):
    field: str
    message: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    title: str
    status: int
    detail: str
    code: str
    trace_id: str | None = None
    errors: list[ProblemFault] = []


def status_of(error: HetuflowError) -> HTTPStatus:
    return next(STATUSES[cls] for cls in type(error).__mro__ if cls in STATUSES)


@dataclass(frozen=True, slots=True)
class ProblemAnswer:
    """What an error is answered with, before any framework knows of it."""

    status: HTTPStatus
    problem: Problem
    headers: Mapping[str, str]


def problem_of(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """Answer any error; the only exception handler of the application."""
    said = answer_of(error, path=request.url.path, trace_id=_trace_id(request))
    if said.status is HTTPStatus.UNAUTHORIZED and request.scope.get("state", {}).get(ASKS_PASSWORD):
        said = replace(said, headers={**said.headers, "WWW-Authenticate": _ASK_FOR_KEY})
    return _response(said)


def answer_of(error: Exception, *, path: str, trace_id: str | None) -> ProblemAnswer:
    if (tired := busy(error)) is not None:
        log.warning("The database was too busy for a request.", path=path, error=str(error))
        error = tired
    match error:
        case HetuflowError() as ours if status_of(ours) < HTTPStatus.INTERNAL_SERVER_ERROR or _is_outage(
            ours
        ):
            headers = None
            if isinstance(ours, errors.TooMany | errors.Underway):
                headers = {"Retry-After": str(ours.retry_after)}
            return _answer(
                status_of(ours),
                trace_id,
                code=ours.code,
                detail=ours.message,
                faults=ours.faults,
                headers=headers,
            )
        case HTTPException(status_code=status) as theirs if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return _framework_problem(trace_id, theirs)
        case unexpected:
            log.error("A request met an unexpected error.", path=path, exc_info=unexpected)
            detail = "The server met an error it did not expect; its log has more under this trace_id."
            return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, trace_id, code="internal", detail=detail)


def _is_outage(error: HetuflowError) -> bool:
    return status_of(error) is HTTPStatus.SERVICE_UNAVAILABLE


def _framework_problem(trace_id: str | None, error: HTTPException) -> ProblemAnswer:
    status, faults = HTTPStatus(error.status_code), list[Fault]()
    if isinstance(error, ValidationException):
        # The body was readable and breaks a rule: that is 422 here, 400 is for what cannot be read at all.
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        faults = [_fault(extra) for extra in error.extra or [] if isinstance(extra, dict)]
    code = _FRAMEWORK_CODES.get(status, "request.refused")
    return _answer(status, trace_id, code=code, detail=error.detail, faults=faults, headers=error.headers)


def _answer(
    status: HTTPStatus,
    trace_id: str | None,
    *,
    code: str,
    detail: str,
    faults: tuple[Fault, ...] | list[Fault] = (),
    headers: Mapping[str, str] | None = None,
) -> ProblemAnswer:
    problem = Problem(
        type=f"urn:hetuflow:problem:{code}",
        title=status.phrase,
        status=status,
        detail=detail,
        code=code,
        trace_id=trace_id,
        errors=[ProblemFault(fault.field, fault.message) for fault in faults],
    )
    all_headers = dict(headers or {})
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        all_headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if status is HTTPStatus.UNAUTHORIZED:
        all_headers["WWW-Authenticate"] = "Bearer"
    return ProblemAnswer(status, problem, all_headers)


def _fault(extra: dict[str, Any]) -> Fault:
    return Fault(str(extra.get("key", "")), str(extra.get("message", "")))


def answer(
    request: Request[Any, Any, Any], status: HTTPStatus, *, code: str, detail: str, faults: list[Fault]
) -> Response[Problem]:
    """Answer a request that met no error with a problem all the same."""
    return _response(_answer(status, _trace_id(request), code=code, detail=detail, faults=faults))


def _response(said: ProblemAnswer) -> Response[Problem]:
    return Response(
        said.problem, status_code=said.status, media_type=PROBLEM_JSON, headers=dict(said.headers)
    )


def _trace_id(request: Request[Any, Any, Any]) -> str | None:
    trace_id: str | None = request.scope.get("state", {}).get("trace_id")
    return trace_id
