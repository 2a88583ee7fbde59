"""Around every request: ids, context, and one log line. Bodies, queries and headers are never logged."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Protocol

import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from hetuflow_core.runtime.clock import Clock
from hetuflow_core.runtime.logging import bind_request
from hetuflow_core.tracing import (
    TRACE_ID_BYTES,
    TraceContext,
    new_trace,
    new_trace_id,
    parse_traceparent,
)
from hetuflow_server.http.authorization import set_context
from hetuflow_server.http.source_address import Network, source_address
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.requests.context import AuditEntries, RequestContext

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.http")
_level = logging.getLogger("hetuflow.http")

# What a caller may name its request: short and harmless in a log line and a header.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
# Asked every few seconds by every load balancer and agent.
_NOT_AUDITED = ("/api/v1/gateway/", "/healthz", "/readyz", "/metrics")
_LONGEST_TARGET = 500
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_DENIED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_QUIET = ("/healthz", "/readyz", "/metrics", "/api/v1/gateway/")


def name_request(headers: Mapping[bytes, bytes]) -> tuple[str, str]:
    """Return the trace id and the request id, which the caller may have given."""
    trace = _trace_of(headers)
    trace_id = trace.trace_id if trace else new_trace_id(os.urandom(TRACE_ID_BYTES))
    return trace_id, _request_id(headers, trace_id)


def log_answer(method: str, path: str, status: int, seconds: float) -> None:
    level = logging.DEBUG if path.startswith(_QUIET) else logging.INFO
    # Asked first: composing a line that is not wanted would cost more than the question.
    if _level.isEnabledFor(level):
        log.log(level, "Answered.", method=method, path=path, status=status, ms=round(seconds * 1000, 1))


class DenialRecorder(Protocol):
    async def note(self, audit: AuditContext, status: int) -> None:
        """Record that a request was refused."""


class RequestMiddleware:
    """Gives each request a context, and a request id and a trace id, taken from the caller if it sent them.

    `entries` writes the audit entries of requests that change something; `denials` records refused requests.
    """

    def __init__(
        self,
        app: ASGIApp,
        clock: Clock,
        entries: AuditEntries,
        denials: DenialRecorder,
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        self._app = app
        self._clock = clock
        self._entries = entries
        self._denials = denials
        self._trusted = trusted_proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        trace = _trace_of(headers)
        trace = trace.child(os.urandom(8)) if trace else new_trace(os.urandom(24))
        request_id = _request_id(headers, trace.trace_id)
        scope.setdefault("state", {})
        scope["state"]["trace_id"] = trace.trace_id
        scope["state"]["source"] = self._source(scope, headers)
        scope["state"]["traceparent"] = trace.traceparent()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        started = self._clock.monotonic()
        with bind_request(request_id=request_id, trace_id=trace.trace_id):
            try:
                audit = self._audit_context(scope, request_id)
                set_context(scope, RequestContext(audit, self._entries))
                await self._app(scope, receive, send_with_id)
                denied = status in _DENIED or (status == HTTPStatus.NOT_FOUND and audit.hidden)
                if denied and not scope["path"].startswith(_NOT_AUDITED):
                    await self._denials.note(audit, status)
            finally:
                log_answer(scope["method"], scope["path"], status, self._clock.monotonic() - started)

    def _source(self, scope: HTTPScope, headers: Mapping[bytes, bytes]) -> str | None:
        peer = scope["client"][0] if scope["client"] else None
        if not self._trusted:
            return peer
        return source_address(peer, headers.get(b"x-forwarded-for", b"").decode("latin-1"), self._trusted)

    def _audit_context(self, scope: HTTPScope, request_id: str) -> AuditContext:
        path = scope["path"]
        return AuditContext(
            self._clock.now(),
            scope["state"]["source"],
            request_id,
            mutates=scope["method"] not in _READING and not path.startswith(_NOT_AUDITED),
            action=f"{scope['method']} {path}"[:_LONGEST_TARGET],
            target=path[:_LONGEST_TARGET],
        )


def _trace_of(headers: Mapping[bytes, bytes]) -> TraceContext | None:
    given = headers.get(b"traceparent")
    return parse_traceparent(given.decode("latin-1")) if given else None


def _request_id(headers: Mapping[bytes, bytes], trace_id: str) -> str:
    given = headers.get(b"x-request-id")
    return given.decode() if given and _REQUEST_ID.fullmatch(given) else trace_id
