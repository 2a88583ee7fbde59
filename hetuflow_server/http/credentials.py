"""Where a credential is in a request."""

from __future__ import annotations

from typing import Any

from litestar.connection import ASGIConnection

_SCHEME = "bearer "


def bearer(request: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    header = request.headers.get("authorization", "")
    return header[len(_SCHEME) :].strip() if header.lower().startswith(_SCHEME) else None
