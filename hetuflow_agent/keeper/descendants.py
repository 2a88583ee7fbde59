"""Finds and kills all processes of a task.

A process that calls setsid leaves its process group, and a process whose parent has died leaves the process
tree. The keeper is the subreaper, so orphans become its children; the marker in their environment shows to
which task they belong.
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
    """Signal the process group, unless the main process was waited for: then its number may be used again."""
    if task.pid is not None and not task.main_gone:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(task.pid, number)


def kill_processes(task: Task, owned: Container[int]) -> bool:
    """KILL all processes of the task; whether any was left."""
    signal_group(task, signal.SIGKILL)
    living = living_processes(task, owned)
    for each in living:
        send(each, signal.SIGKILL)
    return bool(living)


def living_processes(task: Task, owned: Container[int]) -> list[Stat]:
    """All living processes of the task. They are noted, so that they are found after they left the tree."""
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


def has_no_orphans(owned: Container[int]) -> bool:
    """Whether the keeper started all of its children itself: then ended tasks have left no process.

    An orphan becomes a child of the keeper before its parent can be waited for. False where the kernel does
    not list children, because a search would take long.
    """
    return lists_children() and all(pid in owned for pid in own_children())


def _orphans(task: Task, owned: Container[int]) -> list[int]:
    """Children of the keeper that it did not start and that belong to the task."""
    markers = {task.marker.encode(errors="surrogateescape")}
    found = []
    for pid in own_children():
        if pid in owned:
            continue
        stat = stat_of(pid)
        if stat is not None and (task.pid in (stat.session, stat.group) or has_any_marker(pid, markers)):
            found.append(pid)
    return found
