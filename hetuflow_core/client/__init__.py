"""The REST client: `Hetuflow` waits for each call, `AsyncHetuflow` is for asyncio; both do the same.

And what agents run: functions with `@task`.
"""

from hetuflow_core.client.blocking import Hetuflow
from hetuflow_core.client.concurrent import AsyncHetuflow
from hetuflow_core.client.following import LogEnd, LogPiece
from hetuflow_core.client.task import TaskCancelled, TaskContext, current_task, task

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
