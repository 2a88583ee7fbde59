"""Everything a command has started, wherever it went.

A process that calls setsid leaves its group, and one whose parent has died loses its place in the tree. The
keeper is the subreaper, so orphans become its children; the marker in their environment says whose they were.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Container
from contextlib import suppress

from hetuflow_agent.keeper.proc import (
    Stat,
    has_any_marker,
    lists_children,
    own_children,
    send,
    stat_of,
    tree,
)
from hetuflow_agent.keeper.task import Task


def signal_group(task: Task, number: signal.Signals) -> None:
    """To the group of a main process that has not been waited for: until then its number is nobody else's."""
    if task.pid is not None and not task.main_gone:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(task.pid, number)


def kill_family(task: Task, owned: Container[int]) -> bool:
    """KILL whatever belongs to the task; whether anything was left to kill."""
    signal_group(task, signal.SIGKILL)
    living = look(task, owned)
    for each in living:
        send(each, signal.SIGKILL)
    return bool(living)


def look(task: Task, owned: Container[int]) -> list[Stat]:
    """What lives of the task now; remembered, so that it is found after it left the tree."""
    roots = set(_orphans(task, owned))
    if task.pid is not None and not task.main_gone:
        roots.add(task.pid)
    for pid in tree(roots):
        found = stat_of(pid)
        if found is not None:
            task.seen[pid] = found
    living = []
    for pid, known in list(task.seen.items()):
        now = stat_of(pid)
        if now is not None and now.living and now.start_ticks == known.start_ticks:
            living.append(now)
        else:
            task.seen.pop(pid, None)
    return living


def leaves_nobody(owned: Container[int]) -> bool:
    """Whether none of our children is somebody else's orphan: then nothing outlives those that have ended.

    An orphan is a child of ours before its parent can be waited for. False where it would take long to know.
    """
    return lists_children() and all(pid in owned for pid in own_children())


def _orphans(task: Task, owned: Container[int]) -> list[int]:
    """Children of ours that we did not start, and that are the task's."""
    markers = {task.marker.encode(errors="surrogateescape")}
    found = []
    for pid in own_children():
        if pid in owned:
            continue
        stat = stat_of(pid)
        if stat is not None and (task.pid in (stat.session, stat.group) or has_any_marker(pid, markers)):
            found.append(pid)
    return found
