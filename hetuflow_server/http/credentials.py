"""Where a credential is in a request."""

from __future__ import annotations

from typing import Any

from litestar.connection import ASGIConnection

_SCHEME = "bearer "


def bearer(request: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    return credential_in(request.headers.get("authorization", ""))


def source_of(request: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    """Return the address a request came from, as far as it is known."""
    source: str | None = request.scope["state"].get("source")
    return source


def credential_in(header: str) -> str | None:
    """Return the credential of an Authorization header, if it has one."""
    return header[len(_SCHEME) :].strip() if header[: len(_SCHEME)].lower() == _SCHEME else None
