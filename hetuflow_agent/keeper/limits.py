"""How a task is held to what it may use: by the kernel where it can be had, else as well as can be.

All of it is set from outside directly after the start: sooner than a program can do anything of weight.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from typing import Final

from hetuflow_agent.keeper.cgroups import Cgroups
from hetuflow_agent.keeper.cpus import Cpus
from hetuflow_agent.keeper.task import Spec, Task
from hetuflow_agent.keeper.time_slices import TimeSlices

_BLOCK: Final = 512  # what st_blocks counts in


class Limits:
    def __init__(self, cgroups: Cgroups, cpus: Cpus, slices: TimeSlices) -> None:
        self._cgroups = cgroups
        self._cpus = cpus
        self._slices = slices

    def impose(self, task: Task, spec: Spec, pid: int) -> None:
        self._slices.restore(pid)
        with suppress(OSError):
            if spec.nice:
                os.setpriority(os.PRIO_PROCESS, pid, spec.nice)
        if spec.memory is None and spec.cpu is None:
            return
        task.memory_in_group = self._cgroups.confine(task.key, pid, memory=spec.memory, cpu=spec.cpu)
        if spec.cpu is not None and "cpu" not in self._cgroups.controllers:
            with suppress(OSError):
                if (cpus := self._cpus.take(task.key, spec.cpu)) is not None:
                    os.sched_setaffinity(pid, cpus)
        if spec.memory is not None and not task.memory_in_group:
            with suppress(OSError, ValueError):
                # Of each process by itself, at once; the whole is looked at from time to time.
                resource.prlimit(pid, resource.RLIMIT_DATA, (spec.memory, spec.memory))

    def lift(self, task: Task) -> bool:
        """Of a task that is over; whether the kernel killed something of it for want of memory."""
        if task.spec is None or (task.spec.memory is None and task.spec.cpu is None):
            return False
        self._cpus.give_back(task.key)
        task.memory_most = max(task.memory_most, self._cgroups.memory_peak(task.key))
        return self._cgroups.settle(task.key)


def written(spec: Spec) -> int:
    """Bytes of its output that count: of a rolling log, those that are still on the disk."""
    total = 0
    for path in (spec.stdout, spec.stderr):
        with suppress(OSError):
            found = os.stat(path)  # noqa: PTH116  no object for each of many
            total += min(found.st_size, found.st_blocks * _BLOCK) if spec.rolling else found.st_size
    return total
