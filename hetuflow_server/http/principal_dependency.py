"""Who asks, for the handlers that want to know; the guard has found out."""

from __future__ import annotations

from typing import Any

from litestar import Request

from hetuflow_server.http.authorization import principal_of
from hetuflow_server.requests.principal import Principal


def provide_principal(request: Request[Any, Any, Any]) -> Principal:
    return principal_of(request)
