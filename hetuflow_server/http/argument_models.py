"""litestar's model of the arguments of each handler; private, so another version may lack parts of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import structlog
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.http")

_MAP = "route_handler_map"


def models_with(app: Litestar, part: str) -> list[tuple[HTTPRouteHandler, Any]] | None:
    """Return each handler with its model, or None if the named part is missing."""
    models = list(_models(app))
    if all(hasattr(model, part) for _, model in models):
        return models
    missing = part if all(model is not None for _, model in models) else _MAP
    log.warning("litestar lacks private parts, a slower path is used", missing=[missing])
    return None


def _models(app: Litestar) -> Iterator[tuple[Any, Any]]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for entry in getattr(route, _MAP, {"": None}).values():
                yield entry if isinstance(entry, tuple) else (entry, None)
