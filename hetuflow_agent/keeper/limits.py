"""Sets what a task may use, right after its start: time slices, niceness, CPUs and memory.

The keeper sets limits from outside, before the program can do much. Control groups enforce them where they
are available; otherwise the keeper uses CPU affinity and resource limits.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from hetuflow_agent.keeper.cgroups import Cgroups
from hetuflow_agent.keeper.task import Spec, Task

_BLOCK: Final = 512  # the unit of st_blocks
# Seconds of a short time slice. The default is about three milliseconds; the kernel's minimum is 0.1 ms.
SHORT: Final = 0.0002
# The numbers of the system calls sched_setattr and sched_getattr, for which Python has no functions.
_BY_MACHINE: Final[Mapping[str, tuple[int, int]]] = {"x86_64": (314, 315), "aarch64": (274, 275)}
_SET, _GET = _BY_MACHINE.get(os.uname().machine, (None, None))
_NANOSECONDS: Final = 1e9


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
                # The kernel limits each process at once; the keeper checks the sum from time to time.
                resource.prlimit(pid, resource.RLIMIT_DATA, (spec.memory, spec.memory))

    def lift(self, task: Task) -> bool:
        """Remove the limits of an ended task; whether the kernel killed a process for its memory."""
        if task.spec is None or (task.spec.memory is None and task.spec.cpu is None):
            return False
        self._cpus.give_back(task.key)
        task.memory_most = max(task.memory_most, self._cgroups.memory_peak(task.key))
        return self._cgroups.settle(task.key)


def written(spec: Spec) -> int:
    """Bytes of output that count against the limit; of a rolling log, only bytes on the disk."""
    total = 0
    for path in (spec.stdout, spec.stderr):
        with suppress(OSError):
            found = os.stat(path)  # noqa: PTH116  many calls: no Path objects
            total += min(found.st_size, found.st_blocks * _BLOCK) if spec.rolling else found.st_size
    return total


class Cpus:
    """Assigns CPUs to tasks where no control group limits them.

    A task that asks for one and a half CPUs gets two. Each task gets the CPUs with the smallest assigned
    share, which spreads tasks over the host.
    """

    def __init__(self, available: Iterable[int]) -> None:
        self._assigned = dict.fromkeys(sorted(available), 0.0)
        self._shares: dict[str, tuple[frozenset[int], float]] = {}

    def take(self, key: str, amount: float) -> frozenset[int] | None:
        """The CPUs for the task until it gives them back; None if it may use all CPUs."""
        wanted = max(1, math.ceil(amount))
        if wanted >= len(self._assigned) or key in self._shares:
            return None
        chosen = frozenset(sorted(self._assigned, key=lambda cpu: (self._assigned[cpu], cpu))[:wanted])
        self._shares[key] = (chosen, amount / wanted)
        self._assign(key, 1)
        return chosen

    def give_back(self, key: str) -> None:
        if key in self._shares:
            self._assign(key, -1)
            del self._shares[key]

    def _assign(self, key: str, sign: int) -> None:
        chosen, share = self._shares[key]
        for cpu in chosen:
            self._assigned[cpu] += sign * share


class _Attributes(ctypes.Structure):
    """The first version of `struct sched_attr`."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


class TimeSlices:
    """Short time slices for the keeper, and the default for the processes that it starts.

    Between `vfork` and `exec` the keeper waits for its child, and then for a CPU behind other processes. On a
    busy host that takes longer than everything the keeper does for a command. Since Linux 6.12 a process may
    ask for shorter time slices: it gets the same share of the CPU, but sooner. A new process inherits them
    until the keeper restores the default. On an older kernel nothing changes.
    """

    def __init__(self) -> None:
        self._short = False
        # The default, for new processes.
        self._default = ctypes.byref(_Attributes())

    def shorten(self) -> bool:
        """Use short time slices from now on; whether the kernel does so."""
        if os.sched_getscheduler(0) != os.SCHED_OTHER:
            return False  # an administrator has set another scheduling policy
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        self._default = ctypes.byref(_attributes(nice, 0.0))
        self._short = _set(0, ctypes.byref(_attributes(nice, SHORT))) and slice_of(0) == SHORT
        return self._short

    def restore(self, pid: int) -> None:
        """Give a new process the default time slices."""
        if self._short:
            _set(pid, self._default)


def slice_of(pid: int) -> float | None:
    """Seconds of the time slices of a process; None if unknown."""
    found = _attributes(0, 0.0)
    if _GET is None or _syscall(_GET, pid, ctypes.byref(found), ctypes.sizeof(found), 0) != 0:
        return None
    return float(found.runtime / _NANOSECONDS) or None


def _attributes(nice: int, seconds: float) -> _Attributes:
    return _Attributes(
        size=ctypes.sizeof(_Attributes),
        policy=os.SCHED_OTHER,
        nice=nice,
        runtime=round(seconds * _NANOSECONDS),
    )


def _set(pid: int, attributes: object) -> bool:
    return _SET is not None and _syscall(_SET, pid, attributes, 0) == 0


_syscall: Final = ctypes.CDLL(None).syscall
