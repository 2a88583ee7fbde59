"""What handlers ask for by name, given to them without delay."""

from __future__ import annotations

from litestar import Litestar

from hetuflow_server.http.argument_models import models_with


def resolve_one_by_one(app: Litestar) -> None:
    """Have what a handler depends on put together in one go.

    The framework makes a task for each of several that do not depend on each other, lest one waits for the
    other. None of ours waits for anything: the tasks took longer than all the rest of a call's way to its
    handler. Without the private part of litestar that allows this, litestar makes the tasks.
    """
    for _, model in models_with(app, "dependency_batches") or ():
        model.dependency_batches = [{one} for batch in model.dependency_batches for one in batch]
