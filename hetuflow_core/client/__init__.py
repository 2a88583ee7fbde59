"""The REST client: `Hetuflow` waits for each call, `AsyncHetuflow` is for asyncio; both do the same.

And what agents run: functions with `@task`. The clients are loaded when they are asked for: a function that
runs on an agent asks no server, and commands start quickly only without what they do not use.
"""

import importlib
from typing import TYPE_CHECKING, Any

# Never later: its module has the name of the decorator, which has to win.
from hetuflow_core.client.task import TaskCancelled, TaskContext, current_task, task

if TYPE_CHECKING:
    from hetuflow_core.client.async_client import AsyncHetuflow
    from hetuflow_core.client.log_following import LogEnd, LogPiece
    from hetuflow_core.client.sync_client import Hetuflow
    from hetuflow_core.client.task_handles import enqueuing as enqueuing

__all__ = [
    "AsyncHetuflow",
    "Hetuflow",
    "LogEnd",
    "LogPiece",
    "TaskCancelled",
    "TaskContext",
    "current_task",
    "task",
]

_HOMES = {
    "AsyncHetuflow": "async_client",
    "Hetuflow": "sync_client",
    "LogEnd": "log_following",
    "LogPiece": "log_following",
    "enqueuing": "task_handles",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
