"""Which pages of other origins may call the REST API from a browser: none, unless a setting names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from litestar.config.cors import CORSConfig

_MAX_AGE_SECONDS: Final = 600


def cross_origin(origins: Sequence[str]) -> CORSConfig | None:
    """Return what lets pages of these origins in. Browsers add no credentials by themselves to such calls."""
    if not origins:
        return None
    return CORSConfig(
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "If-Match", "X-Request-Id"],
        expose_headers=["ETag", "Retry-After", "X-Request-Id"],
        allow_credentials=False,
        max_age=_MAX_AGE_SECONDS,
    )
