"""Who asks: every route but the health checks depends on this."""

from __future__ import annotations

from typing import Any

from litestar import Request
from litestar.di import NamedDependency

from hetuflow_server.http.credentials import bearer
from hetuflow_server.services.access import Access, Principal


async def provide_principal(request: Request[Any, Any, Any], access: NamedDependency[Access]) -> Principal:
    return await access.principal(bearer(request))
