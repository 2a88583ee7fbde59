"""Short turns on the processor for the keeper, so that it has them soon.

Between `vfork` and `exec` the keeper waits for its child, and after that for a processor, behind whatever
runs there: on a busy machine that takes longer than everything it does for a command. Since Linux 6.12 a
process may ask for turns shorter than usual; it gets no more of the processor by that, but sooner. What it
starts has the same until it runs its own program, and the usual ones from then on.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Final

# Seconds of one turn; usual are about three milliseconds. No kernel allows less than a tenth of one.
SHORT: Final = 0.0002
# The numbers of sched_setattr and sched_getattr, for which Python has no functions.
_BY_MACHINE: Final[Mapping[str, tuple[int, int]]] = {"x86_64": (314, 315), "aarch64": (274, 275)}
_SET, _GET = _BY_MACHINE.get(os.uname().machine, (None, None))
_NANOSECONDS: Final = 1e9


class _Attributes(ctypes.Structure):
    """`struct sched_attr` as it was at first."""

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
    """Everything as usual until `shorten`, and after it where the kernel knows nothing of the kind."""

    def __init__(self) -> None:
        self._short = False
        # What a child is given back, as the kernel is told it.
        self._usual = ctypes.byref(_Attributes())

    def shorten(self) -> bool:
        """Have short turns from now on; whether that is so."""
        if os.sched_getscheduler(0) != os.SCHED_OTHER:
            return False  # somebody had other plans with us
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        self._usual = ctypes.byref(_attributes(nice, 0.0))
        self._short = _set(0, ctypes.byref(_attributes(nice, SHORT))) and slice_of(0) == SHORT
        return self._short

    def restore(self, pid: int) -> None:
        """Let a process that we have started have the usual ones."""
        if self._short:
            _set(pid, self._usual)


def slice_of(pid: int) -> float | None:
    """Seconds of one turn of a process; None where nobody can say."""
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
