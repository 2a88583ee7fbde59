"""What handlers ask for by name, given to them without delay."""

from __future__ import annotations

from litestar import Litestar
from litestar.routes import HTTPRoute


def resolve_one_by_one(app: Litestar) -> None:
    """Have what a handler depends on put together in one go.

    The framework makes a task for each of several that do not depend on each other, lest one waits for the
    other. None of ours waits for anything: the tasks took longer than all the rest of a call's way to its
    handler.
    """
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for _, model in route.route_handler_map.values():
                model.dependency_batches = [{one} for batch in model.dependency_batches for one in batch]
