"""Watching a task until it ends."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from hetuflow_core.client.exchange import Emit, Now, Pause, Plan, Stream
from hetuflow_core.client.log_following import PATIENCE_SECONDS, LogEnd, LogPiece, follow_logs
from hetuflow_core.client.operations import tasks
from hetuflow_core.errors import ServerUnreachable
from hetuflow_core.resources.tasks import TaskDetail, TaskInstance
from hetuflow_core.states import TASK_TERMINAL

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0


def wait(task_id: UUID | str, timeout: float | None = None) -> Plan[TaskDetail]:
    """The task once it has ended, however it did; `TimeoutError` if that takes longer than `timeout` seconds.

    A server that goes away meanwhile is waited for as long as a restart may take.
    """
    gaze = _TaskWatch(task_id)
    started_at: float = yield Now()
    while True:
        found = yield from gaze.look()
        if found is not None and found.status in TASK_TERMINAL:
            return found
        if timeout is not None and (yield Now()) + gaze.pause > started_at + timeout:
            raise TimeoutError(f"Task {task_id} has not ended within {timeout:g} seconds; it goes on.")
        yield from gaze.rest()


def watch(task_id: UUID | str) -> Stream[TaskDetail]:
    """The task as it is, and again whenever it has changed; the last item is the ended task."""
    gaze = _TaskWatch(task_id)
    last: TaskDetail | None = None
    while True:
        found = yield from gaze.look()
        if found is not None and found != last:
            last = found
            yield Emit(found)
            gaze.refresh()
        if found is not None and found.status in TASK_TERMINAL:
            return
        yield from gaze.rest()


def follow(
    task_id: UUID | str,
    stream: str | None = None,
    *,
    newest: bool = False,
    tail: int | None = None,
    since: datetime | None = None,
) -> Stream[TaskInstance | LogPiece | LogEnd | TaskDetail]:
    """The logs of all attempts, live: each begins with its instance; the last item is the ended task.

    With `newest` they begin with the newest attempt there is now. `tail` and `since` are about the first
    that is followed: those after it are shown whole.
    """
    gaze = _TaskWatch(task_id)
    followed: set[UUID] = set()
    while True:
        found = yield from gaze.look()
        fresh = [one for one in found.instances if one.id not in followed] if found is not None else []
        if newest and fresh:
            followed |= {one.id for one in fresh[:-1]}
            fresh, newest = fresh[-1:], False
        for instance in fresh:
            yield Emit(instance)
            yield from follow_logs(instance.id, stream, tail=tail, since=since)
            followed.add(instance.id)
            tail = since = None
        if fresh:
            # What was found is old by now.
            gaze.refresh()
        elif found is not None and found.status in TASK_TERMINAL:
            yield Emit(found)
            return
        else:
            yield from gaze.rest()


class _TaskWatch:
    """Looks at a task again and again, less often the longer nothing happens."""

    def __init__(self, task_id: UUID | str) -> None:
        self.task_id = task_id
        self.pause = _FIRST_PAUSE
        self.heard_at: float | None = None

    def look(self) -> Plan[TaskDetail | None]:
        """None while the server is away."""
        now: float = yield Now()
        try:
            found = yield from tasks.task(self.task_id)
        except ServerUnreachable:
            if self.heard_at is None or now - self.heard_at > PATIENCE_SECONDS:
                raise
            return None
        self.heard_at = now
        return found

    def rest(self) -> Plan[None]:
        yield Pause(self.pause)
        self.pause = min(self.pause * 1.5, _LONGEST_PAUSE)

    def refresh(self) -> None:
        self.pause = _FIRST_PAUSE
