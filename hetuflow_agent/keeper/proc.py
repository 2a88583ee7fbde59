"""Reads /proc: the identity of processes, their children, and the marker of a task in their environment.

A pid does not identify a process, because the kernel uses it again. Pid, start time and boot together do.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_MOST_STAT: Final = 4096
_DEAD_STATES: Final = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class Identity:
    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Stat:
    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int

    @property
    def living(self) -> bool:
        return self.state not in _DEAD_STATES


@cache
def boot_id() -> str:
    """Another value after every boot of the host."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def stat_of(pid: int) -> Stat | None:
    """None for a process that does not exist."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is in brackets and may contain any character, also brackets and spaces.
    fields = text[text.rindex(b")") + 2 :].split()
    return Stat(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _read(path: str) -> bytes:
    """Called for many processes, so without file objects."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MOST_STAT)
    finally:
        os.close(descriptor)


def _read_whole(path: str) -> bytes:
    """Read a file of any length."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while more := os.read(descriptor, _MOST_STAT):
            found += more
        return found
    finally:
        os.close(descriptor)


def identity_of(pid: int) -> Identity | None:
    found = stat_of(pid)
    return Identity(pid, found.start_ticks, boot_id()) if found is not None else None


def is_living(identity: Identity) -> bool:
    if identity.boot_id != boot_id():
        return False
    found = stat_of(identity.pid)
    return found is not None and found.living and found.start_ticks == identity.start_ticks


def all_pids() -> Iterator[int]:
    for name in os.listdir(_PROC):  # noqa: PTH208  thousands of names: no Path object for each
        if name.isdecimal():
            yield int(name)


@cache
def lists_children() -> bool:
    """Whether the kernel lists the children of a process; otherwise all processes must be searched."""
    return (_PROC / "thread-self/children").exists()


def own_children() -> list[int]:
    """The children of this process, which has one thread."""
    if not lists_children():
        return children_of(os.getpid())
    return [int(child) for child in _read_whole("/proc/thread-self/children").split()]


def children_of(pid: int) -> list[int]:
    if not lists_children():
        return [found.pid for each in all_pids() if (found := stat_of(each)) and found.parent == pid]
    found_pids: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  names are all that is needed
            with suppress(FileNotFoundError, ProcessLookupError):
                found_pids += map(int, _read_whole(f"/proc/{pid}/task/{thread}/children").split())
    return found_pids


def tree(roots: Collection[int]) -> set[int]:
    """The roots and all of their descendants."""
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children_of(pid)
    return found


def resident_bytes(pid: int) -> int:
    """Bytes of private memory of a process; shared pages do not count."""
    try:
        fields = (_PROC / str(pid) / "statm").read_text(encoding="ascii").split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


def has_any_marker(pid: int, markers: set[bytes]) -> bool:
    """Whether the process was started with one of `markers` (NAME=value) in its environment."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # the process has exited, or belongs to another user
        return False
    return not markers.isdisjoint(environment.split(b"\0"))


def send(stat: Stat, number: signal.Signals) -> None:
    """Signal exactly that process, and no other one that has got the same pid since."""
    try:
        descriptor = os.pidfd_open(stat.pid)
    except OSError:
        return
    try:
        now = stat_of(stat.pid)
        if now is not None and now.start_ticks == stat.start_ticks:
            with suppress(OSError):  # the process has exited, or belongs to another user
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)
