"""Ends the processes of a keeper that was killed; their exit codes can no longer be known."""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from hetuflow_agent.keeper.proc import (
    Identity,
    Stat,
    all_pids,
    has_any_marker,
    is_living,
    send,
    stat_of,
    tree,
)
from hetuflow_agent.keeper.task import Task

_GRACE: Final = 2.0
_LOOK_EVERY: Final = 0.02
_LONGEST: Final = 5.0


@dataclass(frozen=True, slots=True)
class Leftover:
    """A task of a killed keeper. Without `identity`, its processes are found by the marker only."""

    identity: Identity | None
    marker: str


def leftovers_of(tasks: Iterable[Task], boot_id: str) -> list[Leftover]:
    """The tasks without an end that may still run, which excludes tasks of an earlier boot."""
    return [
        Leftover(task.identity, task.marker) for task in tasks if not task.over and task.boot_id == boot_id
    ]


def end_leftovers(leftovers: Collection[Leftover]) -> int:
    """Send TERM, wait two seconds, send KILL; return the number of processes. Blocks."""
    found = _living(leftovers)
    count = len(found)
    for stat in found:
        send(stat, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    while (found := _living(leftovers)) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY)
    deadline = time.monotonic() + _LONGEST
    while found and time.monotonic() < deadline:
        for stat in found:
            send(stat, signal.SIGKILL)
        time.sleep(_LOOK_EVERY)
        found = _living(leftovers)
    return count


def _living(leftovers: Collection[Leftover]) -> list[Stat]:
    mains = {
        each.identity.pid for each in leftovers if each.identity is not None and is_living(each.identity)
    }
    markers = {each.marker.encode() for each in leftovers}
    stats = [found for pid in all_pids() if (found := stat_of(pid)) is not None and found.living]
    roots = {
        stat.pid
        for stat in stats
        if stat.pid in mains
        or stat.session in mains
        or stat.group in mains
        or has_any_marker(stat.pid, markers)
    }
    family = tree(roots)
    return [stat for stat in stats if stat.pid in family]
