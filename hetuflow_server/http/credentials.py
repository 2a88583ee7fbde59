"""Where a credential is in a request."""

from __future__ import annotations

from typing import Any

from litestar import Request

_SCHEME = "bearer "


def bearer(request: Request[Any, Any, Any]) -> str | None:
    header = request.headers.get("authorization", "")
    return header[len(_SCHEME) :].strip() if header.lower().startswith(_SCHEME) else None
