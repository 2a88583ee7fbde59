"""Where a credential is in a request."""

from __future__ import annotations

import base64
from typing import Any

from litestar.connection import ASGIConnection

_SCHEME = "bearer "
_BASIC = "basic "
# In the state of a request that a browser may bring a name and a password along with.
ASKS_PASSWORD = "asks_password"  # noqa: S105 - a name


def bearer(request: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    return credential_in(request.headers.get("authorization", ""))


def basic(request: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    """Return the password of a browser that was asked for one; whatever the name is."""
    header = request.headers.get("authorization", "")
    if header[: len(_BASIC)].lower() != _BASIC:
        return None
    try:
        said = base64.b64decode(header[len(_BASIC) :], validate=True).decode()
    except ValueError:
        return None
    return said.partition(":")[2] or None


def source_of(request: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    """Return the address a request came from, as far as it is known."""
    source: str | None = request.scope["state"].get("source")
    return source


def credential_in(header: str) -> str | None:
    """Return the credential of an Authorization header, if it has one."""
    return header[len(_SCHEME) :].strip() if header[: len(_SCHEME)].lower() == _SCHEME else None
