"""The request context as a dependency of handlers; the guard has authenticated its principal."""

from __future__ import annotations

from typing import Any

from litestar import Request

from hetuflow_server.http.authorization import context_of
from hetuflow_server.requests.context import RequestContext


def provide_context(request: Request[Any, Any, Any]) -> RequestContext:
    return context_of(request)
